"""Next to no computing on tensors of any size: what remains is moving them."""

INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}


def infer(x, *, outputs):
    outputs["y"][0] = x[0]
