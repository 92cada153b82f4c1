"""Pickles of Arrays. The C module imports this file when it needs it.

A pickle has the bytes, their layout and their place. With protocol 5 the bytes are a buffer, which may
travel beside the pickle; it is the array's own memory if the host can read that.
"""

from pickle import PickleBuffer

from usmbridge import _native, asarray, empty


def _staged(a, padded):
    """Returns a copy that the host can read.

    It is in host USM of the same context, to which the device copies directly. It is in plain memory if the
    device has no host USM.
    """
    if a.usm_type is not None and not padded and not _native._in_child():
        try:
            copy = empty(a.shape, a.dtype, usm_type="host", sycl_queue=a._queue)
        except ValueError:
            pass
        else:
            copy[...] = a
            return copy
    return asarray(a, device="host", copy=True)


def once(a):
    """Returns a view with the elements that a read-only Array repeats along its axes, as broadcast_to makes it; a itself if there are none."""
    if not a.readonly or a.size == 0 or a.typestr is None or 0 not in a.strides:
        return a
    return a[tuple([slice(0, 1) if step == 0 else slice(None) for step in a.strides])]


def broadcast(a, shape, /):
    """Returns a read-only Array that repeats the elements of a. It is a copy if no library can make a view in the place of a."""
    try:
        from usmbridge import array_api
        if a.usm_type is None or array_api._by_dpnp(a):
            return array_api.broadcast_to(a, tuple(shape)).as_readonly()
    except ImportError:
        pass
    r = empty(shape, a.dtype, usm_type=a.usm_type, sycl_queue=a._queue, device=None if a.usm_type else "host")
    r[...] = a
    return r.as_readonly()


def reduce(a, protocol):
    elements = once(a)
    if elements.size < a.size:
        return broadcast, (elements, a.shape)
    data, name, order, padded, kind, device = _native._bytes_of(a)
    if name is None:
        raise TypeError("an element type without a name cannot be pickled")
    if data is None:
        data, _, order, padded, *_ = _native._bytes_of(_staged(a, padded))
    if protocol < 5:
        payload = data.tobytes()
    else:
        try:
            payload = PickleBuffer(data)
        except BufferError:  # the host cannot read the memory
            payload = PickleBuffer(_staged(data, False))
    return _native._unpickle, (payload, name, a.shape, order, padded, kind, device, int(a.readonly))


def unpickle(buffer, dtype, shape, order, padded, usm_type, device, readonly, /):
    layout = dtype, shape, order == "F", bool(padded), bool(readonly)
    if usm_type is None and device is not None:
        raise ValueError("_unpickle: a device without usm_type")
    a = _native._of_buffer(buffer)
    made = _native._of_bytes(a, *layout)
    child = _native._in_child()
    if child or usm_type is None:
        usm_type, device = None, "host"
    # made is None if the elements cannot start at the address of the bytes, which are then copied. bytes objects are
    # immutable, so a writable array needs a copy too.
    if made is not None and (layout[-1] or not isinstance(buffer, bytes)):
        if usm_type is None and a.usm_type is None:
            return made
        there = asarray(a, usm_type=usm_type, device=device)
    else:
        there = asarray(a, usm_type=usm_type, device=device, copy=True)
    return made if there is a else _native._of_bytes(there, *layout)
