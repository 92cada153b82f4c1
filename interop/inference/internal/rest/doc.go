// Package rest serves an engine by the Open Inference Protocol, version 2, over HTTP/1: server
// and model metadata, health, inference, and of Triton's extensions those for binary tensors,
// system shared memory, model configuration, statistics and the repository's index.
//
// # A request
//
// The path is taken apart before it is unescaped, so that a slash in a name is part of the name.
// Lengths are looked at before a byte of a body is read: a body has a Content-Length, its JSON
// is charged to a gate that bounds the JSON of all requests together and, below that, of each
// tenant (little is always taken), its binary tensors have
// the sizes that the model's datatypes and the shapes say, and are read into memory of the
// engine's pool when they have it. JSON numbers are written there too, without a value in
// between. Bodies may be compressed (gzip, deflate), which changes none of the bounds.
//
// A response is written from the memory of the results. It is compressed where the client
// accepts gzip or deflate and nothing else beside: that is how one asks who means it, while the
// lists that libraries send by themselves are no wish for slower answers.
//
// # What is not in the protocol's text
//
//   - members and parameters that are not known are passed over, as other servers do; known
//     ones that are there twice are refused, and so are the parameters "headers" and "triton_…"
//   - null means that a member is absent
//   - JSON data is a flat list, or lists in lists exactly as the shape has them; NaN, Infinity
//     and -Infinity are read and written as Python's encoder does; FP16 and BF16 are binary only
//   - "priority" has one level; sequences and classification are refused
//   - the status of an error is the nearest of HTTP, where Triton's is mostly 400
//
// # Bounds
//
// A client that sends or takes a body slower than Options allow is cut off. A body that is
// refused is read to its end where that is little, so that the client sees the answer. Serve
// bounds connections, in total and per client (an IPv4 address, an IPv6 /64, or all loopback
// addresses). A client that closes its connection, or its sending half, has its request cancelled.
//
// A page in a browser can post to any address, also to those of this machine. Requests that
// change something are refused when the browser reports another origin. They and all GET and
// HEAD requests over TCP are refused when their Host is a name that is not this server's.
package rest
