"""A Flight server as in pyarrow's documentation. It keeps tables by name."""

import sys

import pyarrow.flight as fl


class Server(fl.FlightServerBase):
    def __init__(self, location):
        super().__init__(location)
        self.tables = {}

    def do_put(self, context, descriptor, reader, writer):
        self.tables[descriptor.path[0]] = reader.read_all()

    def do_get(self, context, ticket):
        return fl.RecordBatchStream(self.tables[ticket.ticket])


server = Server(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
server.shutdown()
