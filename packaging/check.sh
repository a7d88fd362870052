#!/usr/bin/env bash
# Build the packages of packaging/ with the real tools, and run the smoke test of each without a network.
#
#   packaging/check.sh                      all that this computer has the tools for
#   packaging/check.sh wheel conda          these only: wheel, conda, easybuild, docker, apptainer
#
# It needs Linux, root for network namespaces, and an index of Python packages. Containers also need an archive of
# Debian, mmdebstrap and buildah. Recipes are parsed and linted by tests/packaging.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh
unset PYTHONPATH

steps=()
for argument; do
    case $argument in
        wheel | conda | easybuild | docker | apptainer) steps+=("$argument") ;;
        -h | --help) usage; exit ;;
        *) echo "packaging/check.sh knows wheel, conda, easybuild, docker and apptainer, got $argument." >&2; exit 2 ;;
    esac
done
[ ${#steps[@]} = 0 ] && steps=(wheel conda easybuild docker apptainer)

image=mu2mpi:check
lmod=/usr/share/lmod/lmod/libexec/lmod
# The base of the recipes of containers, and the Python of that release of Debian.
suite=bookworm python=3.11
base=localhost/debian:$suite-slim
work=$(mktemp -d)
tools=$PWD/.venv-packaging/bin
export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
clean_up() {
    if [ -d "$work/storage" ]; then buildah rm --all >/dev/null 2>&1 || true; fi
    rm -rf "$work"
}

# has STEP COMMAND...: whether a step has its commands; says what it lacks.
has() {
    local command
    for command in "${@:2}"; do
        if ! command -v "$command" >/dev/null; then
            say "$1: skipped, as there is no $command"
            return 1
        fi
    done
}

# offline COMMAND...: run it in a network namespace with no network, not even that of the host.
offline() { unshare --net -- bash -c 'ip link set lo up 2>/dev/null; exec "$@"' offline "$@"; }

# wheels FOLDER EXTRAS OPTION...: download the wheels of what the built wheel requires, and of what builds it.
wheels() {
    "$tools/python" -m pip download --quiet --only-binary=:all: --dest "$1" "${@:3}" \
        "$(echo dist/mu2mpi-*.whl)[$2]" 'setuptools>=77' pip
}

check_wheel() {
    local file environment
    wheels "$work/wheel" mpich
    for file in dist/mu2mpi-*.whl dist/mu2mpi-*.tar.gz; do
        say "installing $file without a network"
        environment=$work/environment-${file##*.}
        "$tools/python" -m venv "$environment"
        offline "$environment/bin/python" -m pip install --quiet --no-index --find-links="$work/wheel" "$PWD/${file}[mpich]"
        offline env PATH="$environment/bin:$PATH" packaging/smoke-test.sh
    done
}

check_conda() {
    say "building the conda recipe, and installing the package into an empty prefix"
    wheels "$work/conda-wheels" mpich
    mkdir "$work/conda"
    offline env PATH="$tools:$PATH" "$tools/python" packaging/conda/build.py \
        "$work/conda-wheels" dist/mu2mpi-*.tar.gz "$work/conda"
    offline env PATH="$work/conda/prefix/bin:/usr/bin:/bin" packaging/smoke-test.sh
}

# With the Python and the packages of an environment in place of the modules that the easyconfig depends on.
check_easybuild() {
    local environment=$work/environment-easybuild modules option options=()
    say "building the easyconfig without a network"
    wheels "$work/easybuild-wheels" mpich
    "$tools/python" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --no-index --find-links="$work/easybuild-wheels" \
        "$(echo "$PWD"/dist/mu2mpi-*.whl)[mpich]" 'setuptools>=77'
    "$environment/bin/python" -m pip uninstall --quiet --yes mu2mpi
    modules=$("$tools/python" -c 'import runpy, sys
names = runpy.run_path(sys.argv[1], {"SOURCE_TAR_GZ": ""})["dependencies"]
print(",".join(name for name, *_ in names))' packaging/easybuild/*.eb)
    for option in allow-use-as-root-and-accept-consequences disable-map-toolchains ignore-checksums \
        try-toolchain=system,system "filter-deps=$modules" "prefix=$work/easybuild" "sourcepath=$PWD/dist" \
        "robot-paths=$tools/../easybuild/easyconfigs"; do
        options+=("--$option")
    done
    # The checksum is a placeholder until there is a release.
    offline env HOME="$work" EB_PYTHON="$tools/python" LMOD_CMD="$lmod" PATH="$environment/bin:$PATH" \
        "$tools/eb" "${options[@]}" packaging/easybuild/*.eb
}

# A base image of Debian's packages, under the name that the Dockerfile asks for, where no registry is reached.
make_base() {
    local container
    [ -d "$work/storage" ] && return
    mkdir "$work/storage"
    printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$work"/storage{,} \
        >"$CONTAINERS_STORAGE_CONF"
    say "making $base from packages"
    mmdebstrap --quiet --variant=minbase "$suite" "$work/base.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$work/base.tar" / >/dev/null
    buildah commit --quiet --rm "$container" "$base" >/dev/null
    wheels "$work/image-wheels" mpich,digits,analysis --python-version "$python"
}

check_docker() {
    local container
    make_base
    say "building packaging/docker/Dockerfile"
    buildah build --quiet --pull-never --build-arg "BASE=$base" --file packaging/docker/Dockerfile --tag "$image" \
        --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels --volume "$work/image-wheels:/wheels:ro" dist/
    container=$(buildah from --pull-never "localhost/$image")
    say "running it without a network"
    [ "$(buildah run "$container" -- id -un)" = mu2mpi ]
    offline buildah run "$container" -- smoke-test.sh
    buildah rm "$container" >/dev/null
}

# Apptainer itself where it is installed; otherwise, the sections of its definition in a container of the same base.
check_apptainer() {
    if command -v apptainer >/dev/null; then
        say "building packaging/apptainer/mu2mpi.def"
        apptainer build "$work/mu2mpi.sif" packaging/apptainer/mu2mpi.def
        apptainer test --net --network none "$work/mu2mpi.sif"
        return
    fi
    has apptainer unshare mmdebstrap buildah || return 0
    local container source target definition=packaging/apptainer/mu2mpi.def
    make_base
    say "there is no apptainer: running the sections of its definition in $base"
    # section NAME: the lines of a section of the definition.
    section() { sed -n "/^%$1\$/,/^%/{/^%/d;p}" "$definition"; }
    container=$(buildah from --pull-never "$base")
    while read -r source target; do
        [ -z "$source" ] || buildah copy --quiet "$container" "$source" "$target" >/dev/null
    done < <(section files)
    buildah run --env PIP_NO_INDEX=1 --env PIP_FIND_LINKS=/wheels --volume "$work/image-wheels:/wheels:ro" \
        "$container" -- sh -c "$(section post)"
    offline buildah run --user 1000 --env HOME=/tmp "$container" -- sh -ec "$(section environment; section test)"
    buildah rm "$container" >/dev/null
}

make_environment .venv-packaging packaging
[ -e dist ] || scripts/package.sh mpich
for step in "${steps[@]}"; do
    case $step in
        wheel | conda) needs=(unshare) ;;
        easybuild) needs=(unshare "$lmod") ;;
        docker) needs=(unshare mmdebstrap buildah) ;;
        apptainer) needs=() ;;
    esac
    if has "$step" "${needs[@]}"; then "check_$step"; fi
done
