"""Fails, with words that are not for clients."""

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}


def infer(x):
    raise RuntimeError("/a/secret/path")


def warm():
    pass
