"""The module of the entry point dask.sizeof.

Dask loads it in every process. It must not load usmbridge before the first of its objects is
measured, and must not fail if usmbridge cannot be loaded."""


def register(sizeof):
    """Registers the sizes of usmbridge's objects when the first of them is measured."""

    @sizeof.register_lazy("usmbridge")
    def sizes():
        from usmbridge import _dask_sizes

        _dask_sizes.register(sizeof)
