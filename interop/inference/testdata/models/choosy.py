"""Refuses its input with a message for the client."""

from usmbridge.serving import InvalidInput

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}


def infer(x):
    if x.size != 2:
        raise InvalidInput("wants two numbers")
    return {"y": x}


def warm():
    pass
