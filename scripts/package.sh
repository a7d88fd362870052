#!/usr/bin/env bash
# The package: an sdist, and a wheel that is built from it, in dist/; and proof that they are whole and work alone.
#
#   scripts/package.sh                build and check them, and try the wheel with MPICH and with Open MPI
#   scripts/package.sh openmpi        with one of them only
#
# To try it is to install it into an empty environment, and to run the quickstart in an empty folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
# Nothing of the project may help what is installed elsewhere.
unset PYTHONPATH

libraries=()
for argument; do
    case $argument in
        mpich | openmpi) libraries+=("$argument") ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 2 ;;
    esac
done
[ ${#libraries[@]} = 0 ] && libraries=(mpich openmpi)

make_environments mpich
python=$PWD/${folders[mpich]}/bin/python
work=$(mktemp -d)
clean_up() { rm -rf "$work"; }

say "building dist/"
# Of a copy, as a build writes beside the sources, which others may be using; and without what git ignores.
mkdir "$work/sources"
git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- | tar --extract --directory="$work/sources"
rm -rf dist
if ! "$python" -m build --no-isolation --outdir dist "$work/sources" >"$work/build.log" 2>&1; then
    cat "$work/build.log"
    exit 1
fi
"$python" -m twine --no-color check --strict dist/*

# files_of FOLDER: what lies in it, links followed, as relative paths.
files_of() { (cd "$1" && find -L . -type f | sort); }
mkdir "$work/wheel" "$work/sdist"
"$python" -m zipfile --extract dist/*.whl "$work/wheel"
tar --extract --file="$(echo dist/*.tar.gz)" --directory="$work/sdist" --strip-components=1
for part in wheel/mu2mpi sdist/{mu2mpi,docs,jobs,packaging,scripts,tests}; do
    if ! diff <(files_of "$work/sources/${part#*/}") <(files_of "$work/$part"); then
        echo "the ${part%%/*} is without what is marked <; package_data in setup.cfg and MANIFEST.in say what it holds" >&2
        exit 1
    fi
done

# run_quickstart LIBRARY: install the wheel, and run the quickstart, outside of the project.
run_quickstart() {
    local environment=$work/$1/environment
    "$python" -m venv --without-pip "$environment"
    "$python" -m pip --python "$environment/bin/python" install --quiet --no-compile --disable-pip-version-check \
        "$(echo "$PWD"/dist/*.whl)[$1,digits,analysis]"
    PATH=$environment/bin:$PATH
    cd "$(mktemp -d -p "$work/$1")"
    python -c 'import mu2mpi, sys; assert mu2mpi.__file__.startswith(sys.prefix), mu2mpi.__file__'
    mu2mpi examples quickstart
    # Alone first: two ranks would each compile all kernels.
    mu2mpi sweep jobs/quickstart.toml --output runs/alone
    mpirun -n 2 mu2mpi sweep jobs/quickstart.toml --output runs/quickstart
    mu2mpi table runs/quickstart
    mu2mpi plot runs/quickstart --output figure.png
    test -s figure.png
}

try() { run_quickstart "$1" 2>&1 | sed "s/^/$1: /"; }

say "trying the wheel with ${libraries[*]}"
side_by_side try "${libraries[@]}"
