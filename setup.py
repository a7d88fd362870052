"""What setup.cfg cannot say: the description of the package is the README without links to other files."""

import re
from pathlib import Path

from setuptools import setup

README = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")

# Away from the project, where an index of packages shows it, such a link leads nowhere.
setup(long_description=re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)[^)]+\)", r"\1", README))
