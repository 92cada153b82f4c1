package npy

import (
	"context"
	"io"
	"os"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

// WriteOptions configures Save. The zero value is valid.
type WriteOptions struct {
	// Writers is the number of goroutines that write, at most 16. 0 means one for each
	// processor, at most 8. With 1 the caller's goroutine writes.
	Writers int
	// InPlace writes to the file directly and does not sync it to disk. Otherwise Save writes
	// a temporary file in the same directory, syncs it and renames it, so that readers never
	// see an incomplete file, also after a crash. That needs disk space for both files.
	InPlace bool
}

// Save writes an array to a file, after waiting for pending work on it. The elements are written in Fortran
// order if they are contiguous in that order, else in C order. An existing file is replaced and its
// permissions are kept; symbolic links are followed. If Save fails, it leaves no new file, and unless
// InPlace is set the existing file is unchanged. Errors: usmarray.ErrType, ErrNotRegular, errors of package
// fs (syscall.ENOSPC for a full disk), the context's error.
func Save(ctx context.Context, path string, a *usmarray.Array, o WriteOptions) error {
	const op = "Save"
	c, header, err := prepare(a)
	if err != nil {
		return named(op, path, err)
	}
	return named(op, path, transfer.Create(ctx, path, o.InPlace, func(f *os.File) error {
		if _, err := f.WriteAt(header, 0); err != nil {
			return err
		}
		return c.WriteAt(ctx, f, int64(len(header)), o.Writers)
	}))
}

// Write writes an array to a stream in the format of Save, from the calling goroutine. After an error, w
// has a part of the file. Errors: usmarray.ErrType, those of w, the context's error.
func Write(ctx context.Context, w io.Writer, a *usmarray.Array) error {
	const op = "Write"
	c, header, err := prepare(a)
	if err == nil {
		err = operr.Ended(ctx)
	}
	if err == nil {
		err = transfer.Write(w, header)
	}
	if err == nil {
		err = c.WriteTo(ctx, w)
	}
	return named(op, "", err)
}

func prepare(a *usmarray.Array) (*transfer.Content, []byte, error) {
	descr, err := descrOf(a.DataType())
	if err != nil {
		return nil, nil, err
	}
	c, err := transfer.NewContent(a, true, transfer.SwapFor(false, a.DataType()))
	if err != nil {
		return nil, nil, err
	}
	return c, appendHeader(nil, descr, c.Fortran(), a.Shape()), nil
}
