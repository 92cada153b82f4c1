// Package cdata is the Arrow C data interface and the Arrow C device data interface for
// arrays of package usmarray: with libraries in the same process that speak Arrow in C,
// without a copy, in both directions.
//
//	var schema cdata.Schema
//	var array cdata.Array
//	err := cdata.Export(a, &schema, &array)   // a C consumer gets &schema and &array
//	b, err := cdata.Import(&schema, &array)   // the consumer's part, in Go
//
// An array of shape [n] is n values; one of shape [n, a, b, …] is n values of
// arrow.fixed_shape_tensor, as in package usmarrow, whose rules hold here: the element
// types that both sides have, dense rows, a permutation where the axes of a row lie in
// another order, no nulls, read-only on the way in.
//
// Neither way is arrow-go's (its package arrow/cdata). In, release 18.8 reads a struct again
// after it was checked, follows counts and lengths that nobody holds against anything, and
// has no extension types. Out, it leaves the children of an extension type over a list
// out, puts addresses of the Go heap into C memory, and has no ArrowDeviceArray.
//
// # Ownership
//
// What Export writes holds a reference of the array's memory, which goes with the
// release functions that the interface has: each struct, once, on any thread; a child
// that the consumer moved out has a share of its own. Import takes both structs,
// whether it succeeds or not: they say that they were released (moved) afterwards. The
// array that it makes calls the producer's release function once, when its last
// reference is gone, on any goroutine.
//
// # Devices
//
// [ExportDevice] says CPU for memory that the host can read, after a wait, and ONEAPI for
// device memory: the device's DLPack index, and as sync_event the address of a sycl::event
// that is complete when our pending work is (nil: there is none). [ImportDevice] takes
// both; memory of ONEAPI is looked up as DLPack's is, and the event becomes pending work
// of the array. No other library that we know has device type 14 yet.
//
// # Trust
//
// The structs, and what they point to but for the values, are copied once, and moved by
// that; lengths, offsets, counts, children and formats are checked in the copy and used
// from it, so that a producer that writes to them meanwhile changes nothing. A
// struct that lies is an error; columns of other types are refused by their format, before
// anything of their buffers is read. How long its buffers are, the interface does not say, nor
// how long its texts are: there the producer is believed, as any C code in the process is.
package cdata
