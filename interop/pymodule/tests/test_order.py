"""Order of device work: each read sees each earlier write, on all queues that the memory was shown with or exported
for, and memory is not reused before its consumers have finished. order_matrix.py makes the combinations; it runs in one
process for each time at which dpctl is imported, because the first queue of a process matters."""

import json

import pytest
from conftest import peer, program, sycl_device

import order_matrix

# The rows of the table have names with a part before the slash, and the matrix is divided by the writer.
PARTS = sorted({name.partition("/")[0] for name in order_matrix.ROWS}) + list(order_matrix.WRITERS)


@pytest.fixture(scope="module", params=["before", "after", "during"])
def counts(request):
    """Returns by combination the number of wrong reads and of all, with dpctl imported before the first array, after
    arrays have shown their queues, or during the use of arrays."""
    peer("dpctl"), peer("dpnp.tensor")
    if sycl_device().backend != "opencl":
        pytest.skip("the combinations need kernels in OpenCL C and of dpnp")
    return json.loads(program(order_matrix.__file__, request.param).splitlines()[-1])


def check(counts, part):
    these = {name: of for name, of in counts.items() if name.startswith(part + "/")}
    wrong = [f"{name}: {n} of {total}" for name, (n, total) in these.items() if n]
    assert these and not wrong, f"{len(wrong)} of {len(these)} combinations read wrong values:\n" + "\n".join(wrong)


@pytest.mark.parametrize("part", PARTS)
def test_order(counts, part):
    check(counts, part)


@pytest.mark.parametrize("part, world", [("seen", "before"), ("seen", "after"), ("freed", "after")])
def test_out_of_order_queues(part, world):
    """The driver's own queues run work in any order, as queues of GPUs do."""
    peer("dpctl"), peer("dpnp.tensor")
    if sycl_device().filter_string != "opencl:cpu:0":
        pytest.skip("needs the driver whose queues the variable changes")
    out = program(order_matrix.__file__, world, part + "/", USMBRIDGE_CPU_QUEUES="driver")
    check(json.loads(out.splitlines()[-1]), part)
