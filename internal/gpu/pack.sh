#!/usr/bin/env bash
# Writes a folder with everything that the checks of run.sh need on a machine with an NVIDIA GPU, where no package
# can be installed: the SYCL runtime with its CUDA adapter, dpctl and usmbridge for CPython 3.12, and the Go tests as
# programs. That machine has CPython 3.12, NumPy and NVIDIA's driver, and PyTorch, CuPy and JAX if their checks
# should run.
#
#	pack.sh FOLDER WHEEL
#
# USMBRIDGE_UR_ADAPTERS names the directory of libur_adapter_cuda.so.0; docs/gpu.md says how to build it.
set -euo pipefail
out=$(realpath -m "$1") wheel=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
adapter=${USMBRIDGE_UR_ADAPTERS:?is not set: name the directory of libur_adapter_cuda.so.0, see docs/gpu.md}/libur_adapter_cuda.so.0
[ -f "$adapter" ] || { echo "pack.sh: there is no $adapter: see docs/gpu.md" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out/lib" "$out/site" "$out/bin"
for library in libsycl.so.9 libur_loader.so.0 libumf.so.1 libhwloc.so.15 libimf.so libintlc.so.5; do
	cp -L "$VIRTUAL_ENV/lib/$library" "$out/lib/"
done
cp "$adapter" "$out/lib/"
# The loader names two libraries of 30 MB and uses none of their functions: empty ones satisfy it.
for library in libsvml.so libirng.so; do
	"${CC:-cc}" -shared -x c /dev/null -o "$out/lib/$library" -Wl,-soname,"$library"
done
strip --strip-unneeded "$out"/lib/libsycl.so.9 "$out"/lib/libur_*.so.0
# The dpctl of the tests, for the other Python; the pins have the hashes of its wheels.
version=$(sed -n 's/^\(dpctl==[0-9.]*\).*/\1/p' internal/tools/setup/requirements-run.txt)
sed -n "/^dpctl==/,/[^\\\\]\$/p" internal/tools/setup/requirements-run.txt >"$out/dpctl.txt"
"$VIRTUAL_ENV/bin/python" -m pip --no-input --disable-pip-version-check download --quiet --no-deps --require-hashes \
	--only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 --dest "$out" --requirement "$out/dpctl.txt" ||
	{ echo "pack.sh: no wheel of $version for CPython 3.12" >&2; exit 1; }
for file in "$out"/*.whl "$wheel"; do
	"$VIRTUAL_ENV/bin/python" -m zipfile -e "$file" "$out/site"
done
rm -rf "$out"/*.whl "$out/dpctl.txt" "$out"/site/dpctl/tests "$out"/site/dpctl/include
for package in syclobj memmgr usmarray; do
	"${GO:-go}" test -c -ldflags='-s -w' -o "$out/bin/$package.test" "./$package"
	[ ! -d "$package/testdata" ] || { mkdir -p "$out/$package" && cp -r "$package/testdata" "$out/$package/"; }
done
cp "$here/run.sh" "$here/check.py" "$here/figures.py" "$out/"
du -sh "$out"
