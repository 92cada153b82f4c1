"""Some 50 ms of Python that holds the GIL all the time."""

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}

STEPS = 900_000


def work():
    total = 0
    for i in range(STEPS):
        total += i & 7
    return total


def warm():
    work()


def infer(x, *, outputs):
    outputs["y"][0] = float(work())
