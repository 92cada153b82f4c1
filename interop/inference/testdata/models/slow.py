"""Takes as many seconds as its input says."""

import time

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}


def infer(x):
    for _ in range(int(x[0].item() * 100)):
        time.sleep(0.01)  # interrupted when the request's time is over
    return {"y": x}


def warm():
    pass
