"""pyarrow's Flight client against a server of package flight; run by its tests.

usage: pyarrow_peer.py LOCATION [TOKEN]
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

location, token = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
options = fl.FlightCallOptions(headers=headers)
client = fl.connect(location)


def path(name):
    return fl.FlightDescriptor.for_path(name)


def put(name, array, batches=1, rows=None, column="tensor"):
    table = pa.record_batch([array], [column])
    schema = table.schema if rows is None else table.schema.with_metadata({"usmbridge.rows": str(rows)})
    table = table.replace_schema_metadata(schema.metadata)
    writer, reader = client.do_put(path(name), schema, options)
    try:
        cuts = [len(table) * i // batches for i in range(batches + 1)]
        for a, b in zip(cuts, cuts[1:]):
            writer.write_batch(table.slice(a, b - a))
        writer.done_writing()
        return reader.read()
    finally:
        writer.close()


def get(name, more=()):
    call = fl.FlightCallOptions(headers=headers + list(more)) if more else options
    return client.do_get(fl.Ticket(name), call).read_all()


def refused(kind, text, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as e:
        assert text in str(e), f"{text!r} is not in {e}"
    else:
        raise AssertionError(f"{f.__name__}{args} was not refused")


def tensors(x):
    return pa.FixedShapeTensorArray.from_numpy_ndarray(x)


# Arrays of one axis, as pyarrow.array(a) makes them: columns of numbers. They are stored as tensors without axes of a row.
for dtype in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split():
    x = np.arange(7).astype(dtype)
    for batches, rows, first in ((1, None, 0), (3, None, 0), (1, 7, 0), (7, 7, 0), (2, None, 3)):
        put("plain", pa.array(x)[first:], batches, rows)
        column = get("plain").column(0).combine_chunks()
        y = column.storage.flatten().to_numpy()
        assert y.dtype == x.dtype and (y == x[first:]).all(), (dtype, batches, rows, y)
put("plain", pa.array(np.zeros(0, "f4")))
assert len(get("plain")) == 0
accepted = "want arrow.fixed_shape_tensor, or int8 to int64, uint8 to uint64, float16, float32 or float64"
for column in (pa.array([True]), pa.array(["text"]), pa.array([[1.0]]), pa.array([1], pa.timestamp("s"))):
    refused(pa.ArrowInvalid, accepted, put, "plain", column)
refused(pa.ArrowInvalid, "null", put, "plain", pa.array([1.0, None]))

# Each element type, in one batch and in several, with and without the announced number of rows.
for dtype in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split():
    x = np.arange(7 * 6).astype(dtype).reshape(7, 2, 3)
    for batches, rows in ((1, None), (3, None), (1, 7), (7, 7)):
        put(dtype, tensors(x), batches, rows)
        y = get(dtype)
        assert y.column_names == ["tensor"]
        np.testing.assert_array_equal(y.column(0).combine_chunks().to_numpy_ndarray(), x)
    info = client.get_flight_info(path(dtype), options)
    assert (info.total_records, info.total_bytes) == (7, x.nbytes), info
    assert client.get_schema(path(dtype), options).schema.field(0).type.shape == [2, 3]
    np.testing.assert_array_equal(
        client.do_get(info.endpoints[0].ticket, options).read_all().column(0).combine_chunks().to_numpy_ndarray(), x)

# Permutations and dimension names are preserved. Slices arrive as their visible rows.
x = np.arange(4 * 2 * 3, dtype="f4").reshape(4, 2, 3)
kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], dim_names=["h", "w"], permutation=[1, 0])
named = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(x.ravel(), 6))
put("named", named)
assert get("named").column(0).type == kind
np.testing.assert_array_equal(get("named").column(0).chunk(0).to_numpy_ndarray(), x.transpose(0, 2, 1))
put("part", tensors(x).slice(1, 2))
np.testing.assert_array_equal(get("part").column(0).chunk(0).to_numpy_ndarray(), x[1:3])
put("none", tensors(x).slice(0, 0))
assert len(get("none")) == 0

# Large messages: pyarrow uses the values in place, aligned to 64 bytes.
big = np.arange(4 << 20, dtype="f4").reshape(-1, 1024)
put("big", tensors(big))
assert get("big").column(0).num_chunks == 16
column = get("big", [(b"usmbridge-batch-bytes", b"100000000")]).column(0)
assert column.num_chunks == 1
np.testing.assert_array_equal(column.chunk(0).to_numpy_ndarray(), big)
print("alignment", column.chunk(0).storage.values.buffers()[1].address % 64)

# A tensor that Go has put.
column = get("from go").column(0)
np.testing.assert_array_equal(column.chunk(0).to_numpy_ndarray(), np.arange(60, dtype="f4").reshape(5, 4, 3))

# Each refusal raises the specified exception.
before = sorted(f.descriptor.path[0] for f in client.list_flights(options=options))
refused(KeyError, "no such tensor", get, "nowhere")
refused(KeyError, "no such tensor", client.get_flight_info, path("nowhere"), options)
refused(pa.ArrowInvalid, "invalid name", put, "a/b", tensors(x))
refused(pa.ArrowInvalid, "column", put, "x", tensors(x), column="other")
refused(pa.ArrowInvalid, "announced", put, "x", tensors(x), rows=5)
refused(pa.ArrowInvalid, "announced", put, "x", tensors(x), rows=3)
nulls = pa.ExtensionArray.from_storage(tensors(x).type, pa.array([[1.0] * 6, None], pa.list_(pa.float32(), 6)))
refused(pa.ArrowInvalid, "nulls", put, "x", nulls)
refused(NotImplementedError, "use free, stats", lambda: list(client.do_action(fl.Action("other", b""), options)))
refused(pa.ArrowException, "at most", put, "x", tensors(np.zeros((100, 1 << 20), "f4")))
assert before == sorted(f.descriptor.path[0] for f in client.list_flights(options=options))
assert [a.type for a in client.list_actions(options)] == ["free", "stats"]
list(client.do_action(fl.Action("free", b"big"), options))
refused(KeyError, "no such tensor", get, "big")
if token:
    options = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer wrong")])
    refused(fl.FlightUnauthenticatedError, "invalid token", get, "part")
    options = fl.FlightCallOptions()
    refused(fl.FlightUnauthenticatedError, "no token", put, "x", tensors(x))
client.close()
print("done")
