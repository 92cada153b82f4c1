package npy

import (
	"context"
	"io"
	"os"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

// WriteOptions say how a file is written. The zero value will do.
type WriteOptions struct {
	// Writers is how many goroutines write at a time, 16 at most; 0 is one for each
	// processor, 8 at most. 1 makes no goroutine.
	Writers int
	// InPlace writes the file at its path, and does not wait for the disk. Otherwise it
	// is written beside it under another name and takes its place when all is on the
	// disk, so that no reader and no crash meets half a file; that needs room for both.
	InPlace bool
}

// Save writes an array of any memory to a file, after waiting for pending work. The elements
// stand in the file in C order, or in Fortran order where that is how they lie. A file that
// was there is replaced and its permissions are kept; a symbolic link is followed. When it
// fails no file is left behind: what was there stays, but with InPlace. Errors:
// usmarray.ErrType, ErrNotRegular, those of package fs (a full disk is syscall.ENOSPC) and
// of the context.
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

// Write writes an array as Save does, to a stream, from the calling goroutine. What was
// written before a failure stays. Errors: usmarray.ErrType, the writer's, and the context's.
func Write(ctx context.Context, w io.Writer, a *usmarray.Array) error {
	const op = "Write"
	c, header, err := prepare(a)
	if err == nil {
		err = ctx.Err()
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
	c, err := transfer.NewContent(a, true, transfer.SwapFor(false, swapWidth(a.DataType())))
	if err != nil {
		return nil, nil, err
	}
	return c, appendHeader(nil, descr, c.Fortran(), a.Shape()), nil
}
