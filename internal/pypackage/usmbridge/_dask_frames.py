"""Serializes Arrays for the messages of a Dask cluster. usmbridge.dask describes the behaviour.

The header of an Array is a dict of types that msgpack supports:

    usmbridge    1, the version of this format
    dtype        array API name of the element type
    shape        extents
    order        "C" or "F": order of the elements in the frames
    padded       whether elements of less than a byte occupy a whole one
    usm_type     "device", "shared", "host", or None for plain memory
    device       filter string of the sender's device, None for plain memory
    readonly     whether the receiver's Array is read-only
    nbytes       bytes of all pieces
    broadcast    only of a read-only Array that repeats its elements: its extents; shape has those of the elements

The frames are the bytes, in pieces. If there are LARGE bytes or more, a frame of one unused byte
precedes them: distributed receives the first frame of a message together with the headers, at an
arbitrary offset, and each later frame into memory of its own, where the Array can stay.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from pickle import PickleBuffer
from typing import Any

import dask
from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import usmbridge
from usmbridge import _dask_memory, _dask_sizes, _pickle

logger = logging.getLogger("distributed.usmbridge")

VERSION = 1
# Bytes from which pieces are received into memory of their own. Below, a copy costs less than a
# frame.
LARGE = 1 << 16
# Longest piece in bytes. distributed splits longer frames itself, and joins them by a copy.
MOST = max(LARGE, dask.utils.parse_bytes(dask.config.get("distributed.comm.shard")))

_FIELDS = ("dtype", "shape", "order", "padded", "usm_type", "device", "readonly", "nbytes")
_MAX_NDIM = 64


def dumps(a: usmbridge.Array, context: Any = None) -> tuple[dict[str, Any], list[memoryview]]:
    """Returns the header and the frames of an Array. The frames are its own memory if the host can
    read that."""
    whole = a.shape
    _, (buffer, dtype, shape, order, padded, usm_type, device, readonly) = (a := _pickle.once(a)).__reduce_ex__(5)
    data = buffer.raw()
    header = dict(
        usmbridge=VERSION, dtype=dtype, shape=shape, order=order, padded=bool(padded),
        usm_type=usm_type, device=device, readonly=bool(readonly), nbytes=data.nbytes,
    )
    if shape != whole:
        header["broadcast"] = whole
    if data.nbytes < LARGE:
        return header, [data]
    ends = [*range(0, data.nbytes, MOST), data.nbytes]
    return header, [memoryview(bytearray(1)), *(data[i:j] for i, j in itertools.pairwise(ends))]


def _refuse(what: str, found: object) -> ValueError:
    text = repr(found)
    return ValueError(
        f"this is not the header of an Array: {what}, not {text[:80]}{'…' if len(text) > 80 else ''}. "
        "Sender and receiver need the same major version of usmbridge"
    )


def _bits(dtype: str, padded: bool) -> int:
    """Returns the bits that an element occupies."""
    known = usmbridge.DType(dtype)  # raises TypeError
    below = re.search(r"(?:int|float)([1-6])(?:_|$)", known.name)
    return int(below[1]) if below and not padded else 8 * known.itemsize


def _check(header: Any) -> None:
    """Raises an error for a header that dumps never writes."""
    if type(header) is not dict:
        raise _refuse("it is a dict", header)
    if header.get("usmbridge") != VERSION:
        raise _refuse(f"'usmbridge' is {VERSION}", header.get("usmbridge"))
    missing = [name for name in _FIELDS if name not in header]
    if missing:
        raise _refuse(f"it has {', '.join(missing)}", sorted(header, key=str))
    shape, nbytes = header["shape"], header["nbytes"]
    if type(shape) not in (tuple, list) or len(shape) > _MAX_NDIM or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise _refuse(f"'shape' has at most {_MAX_NDIM} extents from 0 to 2**63", shape)
    if type(header["dtype"]) is not str:
        raise _refuse("'dtype' is the name of an element type", header["dtype"])
    if header["order"] not in ("C", "F"):
        raise _refuse("'order' is C or F", header["order"])
    if header["usm_type"] not in (None, "device", "shared", "host"):
        raise _refuse("'usm_type' is device, shared, host or None", header["usm_type"])
    if type(header["device"]) is not (str if header["usm_type"] else type(None)):
        raise _refuse("'device' is a filter string, and None without usm_type", header["device"])
    for name in ("padded", "readonly"):
        if type(header[name]) is not bool:
            raise _refuse(f"{name!r} is True or False", header[name])
    bits = _bits(header["dtype"], header["padded"])
    if math.prod(n for n in shape if n) * bits >= 1 << 63:
        raise _refuse("'shape' is one that an Array can have", shape)
    whole: Any = header.get("broadcast", shape)
    if type(whole) not in (tuple, list) or len(whole) != len(shape) or not all(type(n) is int and m in (1, n) and 0 < n < 1 << 63 for m, n in zip(shape, whole) if m != n):
        raise _refuse("'broadcast' has the extents of 'shape', or others where that has 1", whole)
    if type(nbytes) is not int or nbytes != (math.prod(shape) * bits + 7) // 8:
        raise _refuse(f"'nbytes' is what {header['dtype']} elements of shape {tuple(shape)} take", nbytes)


def _pieces(header: dict[str, Any], frames: Any) -> list[memoryview]:
    """Returns the frames that hold the Array's bytes, after checking their total length."""
    views = [memoryview(f).cast("B") for f in frames]
    if header["nbytes"] >= LARGE:
        if not views or views[0].nbytes != 1:
            raise ValueError(f"the frames of an Array of {header['nbytes']} bytes begin with one of a single byte, "
                             f"these with {views[0].nbytes if views else 'none'}")
        views = views[1:]
    found = sum(v.nbytes for v in views)
    if found != header["nbytes"]:
        raise ValueError(f"the Array has {header['nbytes']} bytes, its {len(views)} frames have {found}")
    return views or [memoryview(b"")]


def _place(usm_type: str | None, device: str | None) -> tuple[str | None, str | None]:
    """Returns the usm_type and device of a received Array: the device of that name, else the default
    device (None), else plain memory."""
    if usm_type is None:
        return None, None
    here = [d.filter_string for d in usmbridge.devices()]
    if device in here:
        return usm_type, device
    return (usm_type, None) if here != ["host"] else (None, None)


def _may_stay(piece: memoryview, readonly: bool) -> bool:
    """Reports whether an Array can stay in a frame's memory. The memory must be writable unless the
    Array is read-only, and the frame must be at least half of its buffer: the Array holds the
    whole buffer."""
    return (readonly or not piece.readonly) and 2 * piece.nbytes >= memoryview(piece.obj).nbytes


def _joined(pieces: list[memoryview], nbytes: int, usm_type: str | None, device: str | None) -> usmbridge.Array:
    """Copies all pieces into one new Array of bytes, of the wanted kind unless the host cannot
    write that."""
    kind: Any = "host" if usm_type == "device" else usm_type
    whole = usmbridge.empty(nbytes, "uint8", usm_type=kind, device=device if kind else "host")
    at = 0
    for piece in pieces:
        whole[at : at + piece.nbytes] = piece
        at += piece.nbytes
    return whole


def _buffer(header: dict[str, Any], pieces: list[memoryview], usm_type: str | None, device: str | None) -> Any:
    """Returns the bytes in the form that _unpickle takes: a PickleBuffer can be used in place,
    other memory is copied."""
    if len(pieces) > 1:
        return PickleBuffer(_joined(pieces, header["nbytes"], usm_type, device))
    (piece,) = pieces
    if usm_type or _may_stay(piece, header["readonly"]):
        return piece
    return PickleBuffer(_joined(pieces, header["nbytes"], None, None))


def loads(header: Any, frames: Any) -> usmbridge.Array:
    """Returns the Array of a header and frames. It stays in the frames' memory if that is of the
    right kind, in one piece, aligned and, unless the Array is read-only, writable."""
    _check(header)
    a = _loads(header, frames)
    return _pickle.broadcast(a, header["broadcast"]) if "broadcast" in header else a


def _loads(header: dict[str, Any], frames: Any) -> usmbridge.Array:
    pieces = _pieces(header, frames)
    usm_type, device = _place(header["usm_type"], header["device"])

    def array(buffer: Any, usm_type: str | None, device: str | None) -> usmbridge.Array:
        return usmbridge._unpickle(
            buffer, header["dtype"], tuple(header["shape"]), header["order"], header["padded"], usm_type, device, header["readonly"]
        )

    try:
        return array(_buffer(header, pieces, usm_type, device), usm_type, device)
    except MemoryError as e:
        # An error here would make Dask wait for the value forever. The log gets the text of the
        # error only: a worker keeps its log records, and the error holds the frames.
        logger.warning("an Array of %d bytes is in plain memory, not in %s USM as at the sender: %s", header["nbytes"], usm_type, str(e))
    return array(bytearray().join(pieces), None, None)


def register() -> None:
    """Registers Arrays with distributed and dask.sizeof. It can be called again."""
    dask_serialize.register(usmbridge.Array)(dumps)
    dask_deserialize.register(usmbridge.Array)(loads)
    _dask_sizes.register(sizeof)


register()
_dask_memory.install()
