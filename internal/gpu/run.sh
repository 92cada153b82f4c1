#!/usr/bin/env bash
# Checks usmbridge on the CUDA devices of this machine and prints figures: `bash run.sh` in the folder that pack.sh
# wrote. The exit status is 0 if all checks passed. PYTHON names the interpreter (python3).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for dir in ${CUDA_DRIVER:-} /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/wsl/lib; do
	[ ! -e "$dir/libcuda.so.1" ] || { driver=$dir && break; }
done
export LD_LIBRARY_PATH=$here/lib:${driver:+$driver:}${LD_LIBRARY_PATH:-} PYTHONPATH=$here/site:${PYTHONPATH:-}
export UR_ADAPTERS_SEARCH_PATH=$here/lib USMBRIDGE_SYCL=$here/site/dpctl/ ONEAPI_DEVICE_SELECTOR=cuda:*
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1 USMBRIDGE_REQUIRE_SYCL=1
python=${PYTHON:-python3}
failed=0
# step NAME SECONDS COMMAND... runs one command with a limit and adds to failed.
step() {
	local name=$1 seconds=$2 begin status=0
	shift 2
	begin=$(date +%s)
	echo "== $name"
	timeout -k 5 "$seconds" "$@" || status=$?
	echo "== $name: exit status $status after $(($(date +%s) - begin)) s"
	[ "$status" = 0 ] || failed=$((failed + 1))
}
if command -v nvidia-smi >/dev/null; then
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
step check 90 "$python" -X faulthandler "$here/check.py"
for package in syclobj memmgr usmarray; do
	mkdir -p "$here/$package"
	# Each test program runs in its package's folder, like under go test. These tests need the
	# sources of the project, or a C compiler for the library of failing drivers.
	step "$package" 90 env -C "$here/$package" "$here/bin/$package.test" -test.short -test.timeout 85s \
		-test.skip 'TestInternalsPageNamesExistingIdentifiers|TestPartsOfAPoolAreSeparate|TestUnalignedDriver|TestDriverFailsAtRandom'
done
step figures 60 "$python" -X faulthandler "$here/figures.py"
echo "steps that failed: $failed"
[ "$failed" = 0 ]
