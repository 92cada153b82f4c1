"""The first process computes the luminance: by dpnp if the picture is USM, else by NumPy."""

import os


def prepare():
    """Imports dpnp and makes its first calls, which take longest."""
    try:
        import dpnp
    except ImportError:
        return
    try:
        (dpnp.ones(1, dtype="float32") * 2).sycl_queue.wait()
    except Exception:
        pass  # no device: run reports it


def run(rgb, *, outputs):
    """Writes Y = 0.299 R + 0.587 G + 0.114 B into outputs["grey"], float32 (h, w); rgb is
    float32 (h, w, 3). Returns the library, the process and the addresses in this process."""
    grey = outputs["grey"]
    reason = ""
    try:
        import dpnp

        if rgb.usm_type is None:
            reason = "dpnp supports USM only"
    except ImportError as error:
        reason = str(error)
    if reason:
        import numpy

        source, target = (numpy.from_dlpack(a, device="cpu") for a in (rgb, grey))
        engine, pointers = f"NumPy {numpy.__version__}", [a.ctypes.data for a in (source, target)]
    else:
        source, target = dpnp.from_dlpack(rgb), dpnp.from_dlpack(grey)
        engine = f"dpnp {dpnp.__version__} on {target.sycl_device.filter_string}"
        pointers = [a.__sycl_usm_array_interface__["data"][0] for a in (source, target)]
    red, green, blue = (source[..., i] for i in range(3))
    target[...] = red * 0.299 + green * 0.587 + blue * 0.114
    return {"engine": engine, "reason": reason, "process": os.getpid(), "pointers": pointers}
