"""The attribute cuda of Array. The C module imports this file when it needs it."""


class CUDAView:
    """View of an Array for libraries of CUDA: the attribute `cuda` of Array.

    It has no C exchange API, by which they would see kDLOneAPI.
    """

    __slots__ = ("_array", "_device")

    def __init__(self, array, device):
        self._array, self._device = array, device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return a DLPack capsule of the array as memory of CUDA.

        The same as `Array.__dlpack__` with `dl_device` set to the device of the view.
        """
        device = self._device if dl_device is None else dl_device
        return self._array.__dlpack__(stream=stream, max_version=max_version, dl_device=device, copy=copy)

    def __dlpack_device__(self):
        """Return the DLPack device: (2, CUDA's number of the device) for device and
        shared USM, (3, 0) for host USM."""
        return self._device
