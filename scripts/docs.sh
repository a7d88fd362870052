#!/usr/bin/env bash
# The site: build it, in an environment of its own (.venv-docs), and without a network once that is made.
# Warnings are errors. Its tutorials run while it is built, which takes several minutes.
#
#   scripts/docs.sh                     into build/site; open build/site/index.html
#   scripts/docs.sh --check             and check each page in Chromium, light and wide, dark and narrow:
#                                       HTML (needs Java), accessibility (axe; needs Node.js), what is wider than the page
#   scripts/docs.sh --pictures FOLDER   and a picture of each page as it was checked
#
# CHROMIUM names the browser, if it is not in PATH. Without one, --check checks the HTML alone, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

check=false pictures=
while [ $# -gt 0 ]; do
    case $1 in
        --check) check=true ;;
        --pictures) check=true pictures=$(realpath -m "${2:?--pictures needs a folder}"); shift ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

CHROMIUM=${CHROMIUM:-$(command -v chromium chromium-browser google-chrome | head -n 1 || true)}
export CHROMIUM
no_browser="no Chromium: pages are not opened in a browser (on Debian: apt install chromium; or set CHROMIUM)"
if $check; then
    if ! command -v java >/dev/null || ! command -v npm >/dev/null; then
        echo "--check needs java and npm (on Debian: apt install default-jre-headless npm)" >&2
        exit 2
    fi
    if [ -z "$CHROMIUM" ]; then
        echo "$no_browser" >&2
        [ -z "$pictures" ] || exit 2
    fi
fi

folder=.venv-docs
make_environment "$folder" mpich,digits,docs
say "building build/site; its tutorials run, which takes several minutes"
rm -rf build/site
PATH=$PWD/$folder/bin:$PATH python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --jobs auto \
    --doctree-dir build/doctrees docs build/site
# A template that the theme has read; no page.
rm build/site/_static/webpack-macros.html

say "built: open build/site/index.html"

if $check; then
    say "checking its pages"
    (cd scripts/site && npm install --silent --no-audit --no-fund)
    java -jar scripts/site/node_modules/vnu-jar/build/dist/vnu.jar --skip-non-html --errors-only build/site
    [ -n "$CHROMIUM" ] || { echo "its HTML passed; $no_browser" >&2; exit 1; }
    node scripts/site/check.mjs build/site ${pictures:+"$pictures"}
    echo "all of its pages passed"
fi
