"""Times pyarrow's client against two servers in turn: LOCATION LOCATION BYTES ROUNDS."""

import json
import statistics
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

size, rounds = int(sys.argv[3]), int(sys.argv[4])
clients = [fl.connect(at) for at in sys.argv[1:3]]
array = pa.FixedShapeTensorArray.from_numpy_ndarray(np.full((size // 4096, 1024), 1.5, "f4"))
batch = pa.record_batch([array], ["tensor"]).replace_schema_metadata({"usmbridge.rows": str(len(array))})


def put(client):
    writer, reader = client.do_put(fl.FlightDescriptor.for_path("py"), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    reader.read()
    writer.close()


def get(client):
    table = client.do_get(fl.Ticket("py")).read_all()
    assert table.num_rows == len(array)


times = {}
for i in range(-2, rounds):
    for call in (put, get):
        for k, client in enumerate(clients):
            start = time.perf_counter()
            call(client)
            if i >= 0:
                times.setdefault(f"{call.__name__} {k}", []).append(time.perf_counter() - start)
print(json.dumps({k: statistics.median(v) for k, v in times.items()}))
