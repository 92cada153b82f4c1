// Package npy reads and writes NumPy's .npy files straight into and from the memory of
// arrays: USM and plain memory, of whatever resource the caller names.
//
//	a, err := npy.Load(ctx, "weights.npy", pool, npy.ReadOptions{})
//	defer a.Release()
//	err = npy.Save(ctx, "out.npy", a, npy.WriteOptions{})
//
// The format is that of numpy.lib.format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html),
// versions 1.0, 2.0 and 3.0, in C and in Fortran order. What is written is, byte for byte,
// what numpy.save writes.
//
// # Memory
//
// A header is checked against the size of the file before anything is allocated. Elements
// are read by position and in parallel into memory that the host can read, and through a
// ring of host memory into device memory; at most 16 MiB are needed beside the array. A
// shard of rows is read without the rest of the file, of Fortran order too. Rows that lie
// far apart in a file of Fortran order cost a system call for each column.
//
// An array that lies densely in C or Fortran order is written as it is, others in C order,
// a piece at a time. A piece of device memory that lies scattered is gathered as
// usmarray's CopyFrom does it, which may take host memory as large as the span of the piece.
//
// # Element types
//
// Those that NumPy and usmarray both have: bool, int8 to int64, uint8 to uint64, float16 to
// float64, complex64, complex128. Files of the other byte order are converted while they
// are read, because NumPy reads them as readily; what is written is little-endian.
// Structured types, objects (which are pickles: programs, not data), text, dates, raw bytes
// and extended precision are refused with usmarray.ErrType. So are, in writing, the types
// that NumPy lacks, bfloat16 among them: package safetensors has a name for them.
//
// # Contexts
//
// The end of a context stops a transfer after the pieces under way (1 MiB each for a
// goroutine); a call of an io.ReaderAt is waited for. Nothing is left behind: no goroutine,
// no memory, no file. A context that can end also makes the allocation wait for room until
// then, where the resource can wait (memmgr.Pool); context.Background does not.
//
// # Errors
//
// All are *[OpError], and answer to [ErrFormat] for a file that breaks the format's rules or
// is shorter than its header says, [ErrNotRegular], usmarray.ErrType, usmarray.ErrIndex,
// usmarray.ErrLayout, memmgr.ErrOutOfMemory, to the errors of package fs and of the context,
// and, where a file shrank while it was read, to io.ErrUnexpectedEOF.
//
// # Threads
//
// A [File] may be used from several goroutines, if its io.ReaderAt may. Arrays that are
// written must not change meanwhile.
package npy
