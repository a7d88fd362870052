"""The site: Sphinx, with pages in Markdown. ``scripts/docs.sh`` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import mu2mpi

project = "mu2mpi"
author = "The mu2mpi developers"
version = release = mu2mpi.__version__

extensions = [
    "executed",
    "from_help",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
executed_pages = [
    "index",
    "background/privacy-in-plain-words",
    "start/first-run",
    "start/own-table",
    "guides/privacy",
    "study/sweep-to-figure",
    "study/extending",
    "reference/cite",
    "reference/gallery",
]
exclude_patterns = ["_run", "build"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # Types in docstrings are words, not links.

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
numpydoc_show_class_members = False
autosummary_generate = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

html_theme = "pydata_sphinx_theme"
html_title = f"mu2mpi {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
templates_path = ["_templates"]
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navigation_depth": 1,  # Folding deeper entries takes buttons that have no text.
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
