#!/usr/bin/env bash
# Runs the tests on more devices than this machine has by itself: test-devices.sh DIRECTORY [RUN...]. The runs are
#
#	parts       sub-devices of Intel's CPU device
#	pocl        PoCL alone
#	platforms   PoCL with two devices, and Intel's
#	cuda        one simulated CUDA device
#	cudas       two of them, beside Intel's; the Go tests also with a driver from before CUDA 12.5
#
# Without names all runs are done. Those of PoCL need the Debian packages that pocl.sh fetches; those of CUDA need
# USMBRIDGE_UR_ADAPTERS, the directory of SYCL's CUDA adapter (docs/gpu.md). Runs that are not possible are named with
# the reason. The end of the output has the devices, the numbers of tests and the skipped ones of each run. The exit
# status is 1 if a test failed, or if no run was possible.
set -uo pipefail
dir=$(realpath -m "$1")
shift
runs=("$@")
[ $# -gt 0 ] || runs=(parts pocl platforms cuda cudas)
cd "$(dirname "$0")/../../.."
mkdir -p "$dir"
"${GO:-go}" build -o "$dir/usmpython" ./interop/cmd/usmpython || exit 1
done_=() failed=() skipped=()

# suites SELECTOR SKIP PACKAGE... runs the Go tests, except for those that SKIP matches, and the Python tests of exchange and of
# the order of work, on the first device of the selector.
suites() {
	local status=0
	gotests "$1" -skip "$2" ./syclobj ./memmgr/... ./usmarray "${@:3}" || status=1
	pytests "$1" test_exchange.py 'test_dlpack_*.py' 'test_suai_*.py' test_cuda.py test_device_pairs.py robust/test_exports.py || status=1
	return "$status"
}

# gotests SELECTOR FLAG VALUE PACKAGE... runs Go tests. Packages in which the driver crashed run again, at most twice: see
# crash.
gotests() {
	local selector=$1 options=("${@:2:2}") log=$dir/go.log crashed
	shift 3
	for try in 1 2 3; do
		ONEAPI_DEVICE_SELECTOR=$selector $GOTESTSUM --format=pkgname --format-icons=text --format-hide-empty-pkg -- \
			-count=1 -timeout 15m "${options[@]}" "$@" 2>&1 | tee "$log"
		[ "${PIPESTATUS[0]}" -ne 0 ] || return 0
		[ -n "${crash:-}" ] && grep -q "$crash" "$log" || return 1
		read -ra crashed <<<"$(sed -n 's/^FAIL  \([a-z/]*\) .*/.\/\1/p' "$log" | tr '\n' ' ')"
		[ "${#crashed[@]}" -gt 0 ] && [ "$try" -lt 3 ] || return 1
		set -- "${crashed[@]}"
		echo "DRIVER CRASHED, again: $*"
	done
}

# pytests SELECTOR PATTERN... runs Python tests.
pytests() (
	cd interop/pymodule/tests && export ONEAPI_DEVICE_SELECTOR=$1 || return
	"$dir/usmpython" -c 'import usmbridge; print("devices:", *(f"{d.filter_string} ({d.name})" for d in usmbridge.devices()))'
	"$dir/usmpython" -m pytest -q -rs -p no:cacheprovider ${@:2}
)

# Faults of PoCL: a kernel called all becomes _cl_all, and it crashes when one thread frees USM while another thread frees
# USM or submits work (TestUnalignedDriver has the same tests).
pocl_faults='TestKernelParams|TestUnalignedDriver|TestUSMResource/.*/(Concurrent|OtherGoroutine|DropInC)'
# The background frees of all other tests can meet a use of USM too, which is rare: these packages run again. PoCL frees
# memory before it removes it from its set of pointers, and reads the set without a lock.
pocl_crash='pocl_raw_ptr_set_insert\|^SIGSEGV'

# simulated DEVICES [FLAG] builds the simulated CUDA driver and selects it.
simulated() {
	[ -f "${USMBRIDGE_UR_ADAPTERS:-}/libur_adapter_cuda.so.0" ] || return 3
	mkdir -p "$dir/driver"
	"${CC:-cc}" -shared -fPIC -O1 ${2:-} -Wl,-soname,libcuda.so.1 -o "$dir/driver/libcuda.so.1" internal/testenv/testcuda/testdata/cuda.c -lpthread &&
		"${CC:-cc}" -shared -fPIC -O1 -Wl,-soname,libnvidia-ml.so.1 -o "$dir/driver/libnvidia-ml.so.1" internal/testenv/testcuda/testdata/nvml.c || return 1
	export LD_LIBRARY_PATH=$dir/driver:$VIRTUAL_ENV/lib UR_ADAPTERS_SEARCH_PATH=$USMBRIDGE_UR_ADAPTERS
	export SIMULATED_CUDA_DEVICES=$1
}

# run NAME does one run in a shell of its own; 3 means that it is not possible. All of them set LD_LIBRARY_PATH: SYCL's
# adapter for OpenCL alone does not find the libraries beside it.
run() (
	case $1 in
	parts) export LD_LIBRARY_PATH=$VIRTUAL_ENV/lib; pytests 'opencl:cpu' test_device_pairs.py ;;
	pocl)
		. internal/tools/checks/pocl.sh "$dir/pocl" || return 3
		OCL_ICD_FILENAMES=${OCL_ICD_FILENAMES%%:*}
		crash=$pocl_crash suites 'opencl:cpu' "$pocl_faults" ./usmarray/kernel
		;;
	platforms)
		. internal/tools/checks/pocl.sh "$dir/pocl" || return 3
		export POCL_DEVICES="cpu cpu"
		pytests 'opencl:cpu' test_device_pairs.py test_interprocess.py
		;;
	cuda) simulated 1 || return; suites 'cuda:gpu' '^$' ;;
	cudas)
		simulated 2 -DOLD_DRIVER || return
		local status=0
		gotests 'opencl:cpu;cuda:gpu' -run CUDA ./usmarray || status=1
		simulated 2 || return
		gotests 'opencl:cpu;cuda:gpu' -run CUDA ./usmarray || status=1
		pytests 'opencl:cpu;cuda:gpu' test_device_pairs.py test_cuda.py test_cuda_two.py || status=1
		return "$status"
		;;
	*) echo "test-devices: unknown run $1" >&2; return 1 ;;
	esac
)

for name in "${runs[@]}"; do
	echo "== $name"
	run "$name" 2>&1 | tee "$dir/$name.log"
	case ${PIPESTATUS[0]} in
	0) done_+=("$name") ;;
	3) skipped+=("$name"); echo "not possible here: see the head of $0" ;;
	*) failed+=("$name") ;;
	esac
done
for name in "${runs[@]}"; do
	echo "== $name: devices, tests, and skipped tests with reasons"
	sed -n '/^=== Skipped/,/^DONE/p; /^devices:/p; /^DONE/p; /^DRIVER/p; /^SKIPPED/p; /^[0-9].* in [0-9.]*s/p' "$dir/$name.log" | uniq
done
echo "passed: ${done_[*]:-none}; failed: ${failed[*]:-none}; not possible: ${skipped[*]:-none}"
[ "${#failed[@]}" -eq 0 ] && [ "${#done_[@]}" -gt 0 ]
