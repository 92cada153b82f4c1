"""NumPy, for the modules that compute with it."""


def _import():
    """Returns NumPy. If it is not installed, the error reports what to install."""
    try:
        import numpy
    except ModuleNotFoundError as e:
        if e.name != "numpy":
            raise
        raise ModuleNotFoundError(
            "NumPy is not installed, and Arrays need it to compute: pip install 'usmbridge[numpy]', or 'usmbridge[sycl]' for dpnp and SYCL devices too",
            name="numpy") from None
    return numpy


numpy = _import()
