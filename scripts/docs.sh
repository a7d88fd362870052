#!/usr/bin/env bash
# The site: build it, without a network once its tools are installed; warnings are errors.
#
#   scripts/docs.sh                     into build/site; open build/site/index.html
#   scripts/docs.sh --check             and check each page in Chromium, light and wide, dark and narrow:
#                                       HTML (needs Java), accessibility (axe; needs Node.js), what is wider than the page
#   scripts/docs.sh --pictures FOLDER   and a picture of each page as it was checked
#
# Its tutorials run while it is built. CHROMIUM names the browser, if it is not /usr/bin/chromium.
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

folder=${folders[mpich]}
make_environments mpich
say "building build/site; its tutorials run, for a minute or two"
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
    node scripts/site/check.mjs build/site ${pictures:+"$pictures"}
    echo "all of its pages passed"
fi
