#!/usr/bin/env bash
# Builds the wheel of usmbridge for systems with glibc 2.28, checks it, and builds it again from a copy of the sources
# with an empty build cache. The two must be equal.
#
#	wheel.sh PYTHON OUT        writes the wheel into the directory OUT, which it replaces
#	wheel.sh -check LIBRARY    only checks a library
#
# PYTHON has the packages of internal/tools/setup/requirements-wheel.txt, with the C compiler zig.
set -euo pipefail
glibc=2.28

# check LIBRARY fails if the library needs one Python, if Python cannot load it, or if it names the machine of the
# build. The module looks up all functions of CPython at run time.
check() {
	local dynamic symbols
	dynamic=$(readelf --wide --dynamic --section-headers "$1")
	symbols=$(readelf --wide --dyn-syms "$1" | awk '{sub(/@.*/, "", $8); print ($7 == "UND" ? "needs " : "has ") $8}')
	refuse() { echo "wheel: the library $1" >&2 && exit 1; }
	! grep -q 'NEEDED.*libpython' <<<"$dynamic" || refuse "links to libpython, so only that Python could load it"
	! grep -qE '\.z?debug_' <<<"$dynamic" || refuse "has debug information, which names directories of this machine"
	! grep -E '^needs _?Py' <<<"$symbols" || refuse "links to symbols of CPython; look them up at run time"
	grep -qx 'has PyInit__native' <<<"$symbols" || refuse "does not export PyInit__native, which Python calls to load it"
}

# build ROOT DIRECTORY builds the wheel of the sources in ROOT, checks it, and names the platform that it needs. auditwheel
# fails if the library needs a newer glibc or other libraries; without a patcher it adds none to the wheel.
build() {
	"$python" -m pip --no-input --disable-pip-version-check wheel --no-deps --no-index --no-build-isolation \
		--wheel-dir "$2/built" "$1/internal/pypackage"
	"$python" -m zipfile -e "$2"/built/*.whl "$2/files"
	check "$2/files/usmbridge/_native.abi3.so"
	"$python" -m auditwheel repair --patcher none --plat "manylinux_${glibc/./_}_$(uname -m)" --wheel-dir "$2/dist" "$2"/built/*.whl
}

if [ "$1" = -check ]; then
	check "$2"
	exit
fi
python=$(realpath --no-symlinks "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1577836800} # auditwheel would use the time of the build
export CC="$python -m ziglang cc -target $(uname -m)-linux-gnu.$glibc"
echo "wheel: building for glibc $glibc with zig (1 of 2, about a minute)"
build . "$work/first"
mkdir "$work/copy"
tar --exclude=./bin --exclude=./dist --exclude='./.*' -c . | tar -x -C "$work/copy"
echo "wheel: building again with an empty cache, to compare (2 of 2, one to two minutes)"
GOCACHE=$work/cache build "$work/copy" "$work/second"
cmp "$work"/first/dist/*.whl "$work"/second/dist/*.whl || { echo "wheel: two builds of the same sources differ" >&2 && exit 1; }
"$python" -m abi3audit --strict --summary "$work"/first/dist/*.whl
rm -rf "$out" && mkdir -p "$out" && cp "$work"/first/dist/*.whl "$out/"
ls "$out"/*.whl
