// Package rest serves an engine by the Open Inference Protocol, version 2, over HTTP/1: server
// and model metadata, health and inference, and Triton's extensions for binary tensors, system shared
// memory, statistics and the model repository.
//
// # Requests
//
// The path is split before it is unescaped, so a slash in a name is part of the name. A body has a
// Content-Length, which is checked before a byte is read, or is in chunks. JSON is charged to a budget
// of all requests together; small bodies are always accepted.
// The datatypes and shapes give the sizes of the tensors, which are read into memory of the engine's
// pool. Numbers in JSON are written there directly. Bodies may be compressed (gzip), with the
// same bounds.
//
// A response is written from the memory of the results. It is compressed if the client accepts exactly
// one coding, gzip. HTTP libraries send lists of codings by default, which do not ask for a
// slower response.
//
// # Details that the protocol leaves open
//
//   - unknown members and parameters, and "priority", are ignored; of duplicate members, the last one counts
//   - null means that a member is absent
//   - JSON data is a list of the elements in C order, which may be nested; only the number of elements is
//     checked, as in Triton. NaN, Infinity and -Infinity are written like Python's encoder does, and not read; FP16
//     and BF16 are binary only
//   - sequences and classification are refused
//   - an error has the nearest status of HTTP; Triton mostly uses 400
//
// # Bounds
//
// A client that sends a body or reads a response too slowly is disconnected. A small body of a refused request is
// read to its end, so that the client reads the response. If a client closes its connection, or its sending
// half, its request is cancelled. The caller bounds connections (package admission).
//
// A web page can make a browser post to any address, also to those of this machine. Requests that change
// something are refused if the browser reports another origin. They, and all GET and HEAD requests over
// TCP, are refused if their Host is a name that is not this server's.
package rest
