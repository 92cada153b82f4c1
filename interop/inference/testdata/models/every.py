"""Returns inputs of every datatype unchanged."""

_TENSORS = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16"]
INPUTS = {name: (name, (-1, -1)) for name in _TENSORS}
OUTPUTS = {name: (name, (-1, -1)) for name in _TENSORS}


def infer(**inputs):
    return inputs


def warm():
    pass
