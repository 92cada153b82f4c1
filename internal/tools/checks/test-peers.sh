#!/usr/bin/env bash
# Runs the peers' own tests of exchanging arrays, from their wheels: with usmbridge in the process, and again
# with their from_dlpack replaced by ours. Then runs our tests with JAX, whose wheel has no tests, and with
# libraries that take arrays. bin/jax and bin/consumers have their packages.
set -euo pipefail
cd "$(dirname "$0")/../../../bin"
peers=../interop/pymodule/peers
shared=(numpy._core.tests.test_dlpack pyarrow.tests.test_dlpack dpnp.tests.test_dlpack dpnp.tests.tensor.test_usm_ndarray_dlpack
	array_api_strict.tests.test_creation_functions array_api_strict.tests.test_array_object)
tests() {
	PYTHONPATH=$(realpath "$1") "$PWD/usmpython" -m pytest -q -rsxX -p no:cacheprovider "${@:2}"
}
echo "== the peers' tests with usmbridge loaded"
tests $peers -W ignore -p usmbridge_peers --pyargs "${shared[@]}" dpctl.tests.test_sycl_usm dpnp.tests.tensor.test_usm_ndarray_ctor
echo "== the same with from_dlpack through usmbridge"
tests $peers -W ignore -p usmbridge_peers --route --pyargs "${shared[@]}"
echo "== JAX"
tests jax "$peers/test_jax.py"
echo "== libraries that take arrays"
SCIPY_ARRAY_API=1 tests consumers "$peers/test_consumers.py"
