"""Fails with a message that clients must not see."""

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}


def infer(x):
    raise RuntimeError("/a/secret/path")


def warm():
    pass
