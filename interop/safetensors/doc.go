// Package safetensors reads safetensors files into arrays and writes arrays to them, without an
// intermediate copy in Go memory. Arrays can be in USM or in host memory, of any resource.
//
//	f, err := safetensors.Open("model.safetensors")
//	defer f.Close()
//	w, err := f.Read(ctx, "layer.0.weight", pool, safetensors.ReadOptions{})
//	defer w.Release()
//	rows, err := f.ReadRows(ctx, "embedding", pool, 1000, 2000, safetensors.ReadOptions{})
//
// The format is the published one (https://github.com/huggingface/safetensors): eight bytes
// with the little-endian length of a header, the header in JSON, the elements of all tensors.
//
// # Validation
//
// Opening a file validates the header against the size of the file, before memory is allocated. It fails if
//
//   - the header has more than 100 MB, is not UTF-8 or not JSON, or does not begin with "{"
//   - a key is repeated, also in a tensor or in the metadata
//   - a string has half of a surrogate pair (\ud800)
//   - the metadata is null, which the reference implementation reads as absent
//   - there are gaps between tensors, tensors overlap, or they do not end at the end of the file
//   - the offsets of a tensor do not match its shape and element type
//   - an array cannot have the shape
//
// As in the reference implementation, the keys can have any order, and unknown keys of a tensor are ignored.
// Their values can be nested up to 64 deep. A tensor of an unknown element type is an error only when it is
// read; it must have a valid position and a whole number of bytes.
//
// # Element types
//
//	BOOL, I8 to I64, U8 to U64, F16, F32, F64, BF16, C64
//	F8_E5M2, F8_E4M3 (float8_e4m3fn), F8_E8M0 (float8_e8m0fnu), F8_E5M2FNUZ, F8_E4M3FNUZ
//	F6_E2M3, F6_E3M2, F4 (float4_e2m1fn): packed
//
// The format has no names for the other types of package dlpack. Writing them returns usmarray.ErrType.
//
// # Memory, contexts, threads
//
// Elements are read by position and in parallel: directly into host-readable memory, and through a ring of
// host memory into device memory. A transfer needs at most 16 MiB in addition to the arrays. Rows are read
// without the rest of the tensor. Arrays are written in C order, one piece at a time. A piece of strided
// device memory is copied with usmarray's CopyFrom, which can use as much host memory as the piece spans.
//
// When the context ends, a transfer stops after the pieces in progress (1 MiB for each goroutine) and
// returns when running calls of the io.ReaderAt have returned. No goroutine, memory or file is left. If
// the context can end and the resource can wait (memmgr.Pool), the allocation waits for memory until
// then. With context.Background it does not wait.
//
// A [File] is safe for concurrent use if its io.ReaderAt is. An array must not change while it is written.
//
// # Errors
//
// All errors are *[OpError]. They wrap [ErrFormat] if the file is invalid or too short, [ErrName],
// [ErrNotRegular], usmarray.ErrType, usmarray.ErrIndex, usmarray.ErrLayout, memmgr.ErrOutOfMemory, an error of
// package fs, the context's error, or io.ErrUnexpectedEOF if the file became shorter while it was read.
package safetensors
