"""What Dask's entry point loads: it must not load usmbridge, which most that is sized does
not need, nor fail where that cannot be loaded."""


def register(sizeof):
    """Has usmbridge tell the sizes of its objects, once there is one."""

    @sizeof.register_lazy("usmbridge")
    def sizes():
        from usmbridge import _dask_sizes

        _dask_sizes.register(sizeof)
