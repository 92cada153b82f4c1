// Package safetensors reads and writes safetensors files straight into and from the memory
// of arrays: USM and plain memory, of whatever resource the caller names.
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
// # What is refused
//
// A header of more than 100 MB, that is no UTF-8, no JSON, does not begin with "{", has a key
// twice, in a tensor or in the metadata too, has half of a surrogate pair (\ud800) in a text,
// or null in the place of the metadata ("__metadata__": null), which the reference
// implementation reads as none; tensors that leave holes between them,
// overlap, or do not cover the file to its end; offsets that do not fit shape and type;
// shapes that no array can have. All of that is checked when the file is opened, before
// anything is allocated, and against the real size of the file. As in the reference
// implementation the keys of the header may come in any order, and keys of a tensor that the
// format does not know are passed over with their values, which may be nested 64 deep. A tensor of an element type that is not known is
// refused only when it is read; it must have a whole number of bytes, and lie in its place.
//
// # Element types
//
//	BOOL, I8 to I64, U8 to U64, F16, F32, F64, BF16, C64
//	F8_E5M2, F8_E4M3 (float8_e4m3fn), F8_E8M0 (float8_e8m0fnu), F8_E5M2FNUZ, F8_E4M3FNUZ
//	F6_E2M3, F6_E3M2, F4 (float4_e2m1fn): packed
//
// Other types of package dlpack have no name in the format and cannot be written
// (usmarray.ErrType).
//
// # Memory, contexts, threads
//
// Elements are read by position and in parallel into memory that the host can read, and
// through a ring of host memory into device memory; at most 16 MiB are needed beside the
// arrays. Rows are read without the rest. Arrays are written in C order, a piece at a time;
// a piece of device memory that lies scattered is gathered as usmarray's CopyFrom does it,
// which may take host memory as large as the span of the piece.
//
// The end of a context stops a transfer after the pieces under way (1 MiB each for a
// goroutine); a call of an io.ReaderAt is waited for. Nothing is left behind: no goroutine,
// no memory, no file. A context that can end also makes the allocation wait for room until
// then, where the resource can wait (memmgr.Pool); context.Background does not.
//
// A [File] may be used from several goroutines, if its io.ReaderAt may. Arrays that are
// written must not change meanwhile.
//
// # Errors
//
// All are *[OpError], and answer to [ErrFormat] for a file that breaks the format's rules or
// is shorter than its header says, [ErrName], [ErrNotRegular], usmarray.ErrType,
// usmarray.ErrIndex, usmarray.ErrLayout, memmgr.ErrOutOfMemory, to the errors of package fs
// and of the context, and, where a file shrank while it was read, to io.ErrUnexpectedEOF.
package safetensors
