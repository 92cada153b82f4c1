"""Compares a Flight server with one in Python, both with pyarrow's client: LOCATION LOCATION BYTES ROUNDS."""

import os
import statistics
import sys
import time

ours, theirs, size, rounds = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
pid = os.fork()  # before threads of pyarrow run

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl


class Server(fl.FlightServerBase):
    """The server of pyarrow's documentation. It keeps tables by name."""

    tables = {}

    def do_put(self, context, descriptor, reader, writer):
        self.tables[descriptor.path[0]] = reader.read_all()

    def do_get(self, context, ticket):
        return fl.RecordBatchStream(self.tables[ticket.ticket])


if pid == 0:
    Server(theirs).serve()
    os._exit(0)

array = pa.FixedShapeTensorArray.from_numpy_ndarray(np.full((size // 4096, 1024), 1.5, "f4"))
batch = pa.record_batch([array], ["tensor"]).replace_schema_metadata({"usmbridge.rows": str(len(array))})


def put(client):
    writer, reader = client.do_put(fl.FlightDescriptor.for_path("py"), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    reader.read()
    writer.close()


def get(client):
    assert client.do_get(fl.Ticket("py")).read_all().num_rows == len(array)


try:
    clients = [fl.connect(ours), fl.connect(theirs)]
    clients[1].wait_for_available(60)
    times = {put: ([], []), get: ([], [])}
    for i in range(-2, rounds):
        for call, lists in times.items():
            for client, taken in zip(clients, lists):
                start = time.perf_counter()
                call(client)
                if i >= 0:
                    taken.append(time.perf_counter() - start)
finally:
    os.kill(pid, 9)
print(f"\n{size >> 20} MiB, pyarrow's client, medians of {rounds}\n")
for (call, lists), bound in zip(times.items(), (1, 1.3)):
    a, b = map(statistics.median, lists)
    verdict = "met" if b / a >= bound else "MISSED"
    print(f"{call.__name__}  {1e3 * a:.1f} ms, server in Python {1e3 * b:.1f} ms: speed {b / a:.2f}, bound >= {bound:.2f}  {verdict}")
