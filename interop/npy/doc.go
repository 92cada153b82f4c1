// Package npy reads NumPy's .npy files into arrays and writes arrays to them, without an intermediate
// copy in Go memory. Arrays can be in USM or in host memory, of any resource.
//
//	a, err := npy.Load(ctx, "weights.npy", pool, npy.ReadOptions{})
//	defer a.Release()
//	err = npy.Save(ctx, "out.npy", a, npy.WriteOptions{})
//
// The format is that of numpy.lib.format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html),
// versions 1.0, 2.0 and 3.0, in C and in Fortran order. Written files are identical to those of
// numpy.save.
//
// # Memory
//
// The header is checked against the size of the file before memory is allocated. Elements are read by
// position and in parallel: directly into host-readable memory, and through a ring of host memory into
// device memory. A transfer needs at most 16 MiB in addition to the array. Rows are read without the
// rest of the file, also in Fortran order. If the columns of such a file are long, each column of the
// rows costs a system call.
//
// A contiguous array is written in its own order (C or Fortran), other arrays in C order, one piece at a
// time. A piece of strided device memory is copied with usmarray's CopyFrom, which can use as much host
// memory as the piece spans.
//
// # Element types
//
// The supported types are those that both NumPy and usmarray have: bool, int8 to int64, uint8 to uint64,
// float16 to float64, complex64, complex128, by all names that numpy.load reads. Big-endian files are
// converted while they are read. Written files are little-endian. Structured types, objects (pickles, which
// can run code), text, dates, raw bytes and extended precision return usmarray.ErrType. So does writing a
// type that NumPy lacks, such as bfloat16; use package safetensors for these.
//
// # Contexts
//
// When the context ends, a transfer stops after the pieces in progress (1 MiB for each goroutine) and
// returns when running calls of the io.ReaderAt have returned. No goroutine, memory or file is left. If
// the context can end and the resource can wait (memmgr.Pool), the allocation waits for memory until
// then. With context.Background it does not wait.
//
// # Errors
//
// All errors are *[OpError]. They wrap [ErrFormat] if the file is invalid or too short, [ErrNotRegular],
// usmarray.ErrType, usmarray.ErrIndex, usmarray.ErrLayout, memmgr.ErrOutOfMemory, an error of package fs,
// the context's error, or io.ErrUnexpectedEOF if the file became shorter while it was read.
//
// # Threads
//
// A [File] is safe for concurrent use if its io.ReaderAt is. An array must not change while it is written.
package npy
