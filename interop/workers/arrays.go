package workers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Traffic counts the arrays of one direction.
type Traffic struct {
	Handles uint64 // by handle: no byte copied
	Copies  uint64 // by value: into memory that the other process can map
	Bytes   uint64 // of the copies
}

type traffic struct{ handles, copies, bytes atomic.Uint64 }

func (t *traffic) add(o Traffic) {
	t.handles.Add(o.Handles)
	t.copies.Add(o.Copies)
	t.bytes.Add(o.Bytes)
}

func (t *traffic) load() Traffic {
	return Traffic{Handles: t.handles.Load(), Copies: t.copies.Load(), Bytes: t.bytes.Load()}
}

// lender exports arrays to another process as handles.
type lender struct {
	server *share.Server
	// audience is the audience of copies; the lender of each process sets it.
	audience segment.Audience
	// maxCopies bounds the bytes of the copies of one message; 0 is no bound.
	maxCopies uint64
}

// lent has the arrays of one message.
type lent struct {
	table   []byte
	handles []share.Handle
	traffic Traffic
}

// Kinds of memory of an array in the table.
const (
	entryHost byte = iota
	entryUSM
)

// lend makes a handle for each array. The other process opens each handle once. Arrays that it
// could not map go by value.
// pid is the ID of that process, 0 if only one process opens handles of this one.
func (l *lender) lend(ctx context.Context, pid int, arrays []*usmarray.Array) (out lent, err error) {
	out.table = binary.AppendUvarint(nil, uint64(len(arrays)))
	for i, a := range arrays {
		h, isUSM, err := l.one(ctx, pid, a, &out.traffic)
		if err != nil {
			l.revoke(out.handles)
			return lent{}, fmt.Errorf("array %d: %w", i, err)
		}
		out.handles = append(out.handles, h)
		where := entryHost
		if isUSM {
			where = entryUSM
		}
		b := h.Bytes()
		out.table = append(out.table, where)
		out.table = binary.AppendUvarint(out.table, uint64(len(b)))
		out.table = append(out.table, b...)
	}
	return out, nil
}

func (l *lender) one(ctx context.Context, pid int, a *usmarray.Array, t *Traffic) (h share.Handle, isUSM bool, err error) {
	if _, ok := share.AudienceOf(a.Buffer()); ok {
		h, err = l.server.Export(ctx, a, share.ExportOptions{PID: pid})
		if err == nil {
			t.Handles++
			return h, a.Place().Kind() != syclobj.USMUnknown, nil
		}
		if !byValue(err) {
			return h, false, err
		}
	}
	if t.Bytes += uint64(a.NBytes()); l.maxCopies != 0 && t.Bytes > l.maxCopies {
		return h, false, fmt.Errorf("%w: the arrays to be copied have more than %d bytes (Config.Memory.Result)", ErrTooLong, l.maxCopies)
	}
	c, err := l.copied(ctx, a)
	if err != nil {
		return h, false, fmt.Errorf("copying it for another process: %w", err)
	}
	defer c.Release()
	t.Copies++
	h, err = l.server.Export(ctx, c, share.ExportOptions{PID: pid})
	return h, c.Place().Kind() != syclobj.USMUnknown, err
}

// byValue reports whether the array cannot be lent: the connection to the process that made it has
// ended, or it is device memory of a driver and that process has ended.
func byValue(err error) bool {
	for _, reason := range []error{share.ErrNotShared, share.ErrClosed, share.ErrAddress, share.ErrStale} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// copied copies an array into memory of the same kind if other processes can map that kind, and
// otherwise into host memory.
func (l *lender) copied(ctx context.Context, a *usmarray.Array) (*usmarray.Array, error) {
	r, err := l.like(a.Place())
	if err != nil {
		return nil, err
	}
	return a.Copy(memmgr.Waiting(ctx, r), usmarray.WithTag("workers"))
}

func (l *lender) like(p *syclobj.Place) (*memmgr.Pool, error) {
	if !p.IsHost() {
		if q, err := p.Queue(); err == nil {
			if r, err := segment.Default(q, p.Kind(), l.audience); err == nil {
				return r, nil
			}
		}
	}
	return segment.Default(nil, syclobj.USMUnknown, l.audience)
}

// revoke ends the handles that were not opened.
func (l *lender) revoke(handles []share.Handle) {
	for _, h := range handles {
		l.server.Revoke(h)
	}
}

// entry is an array in a table.
type entry struct {
	isUSM  bool
	handle share.Handle
}

// table reads a table as lend writes it.
func (d *decoder) table() ([]entry, error) {
	n, err := d.count(2)
	if err != nil {
		return nil, err
	}
	if n > maxArrays {
		return nil, bad("%d arrays, at most %d are allowed", n, maxArrays)
	}
	var entries []entry
	for range n {
		where, err := d.take(1)
		if err != nil {
			return nil, err
		}
		size, err := d.count(1)
		if err != nil {
			return nil, err
		}
		b, err := d.take(size)
		if err != nil {
			return nil, err
		}
		h, err := share.ParseHandle(b)
		if err != nil {
			return nil, bad("%w", err)
		}
		if where[0] > entryUSM {
			return nil, bad("an array of kind %d", where[0])
		}
		entries = append(entries, entry{where[0] == entryUSM, h})
	}
	return entries, nil
}

// openAll opens the arrays of a table; the caller owns them.
func openAll(ctx context.Context, entries []entry, server func(isUSM bool) (*share.Server, error)) ([]*usmarray.Array, error) {
	var arrays []*usmarray.Array
	for i, e := range entries {
		s, err := server(e.isUSM)
		if err == nil {
			var a *usmarray.Array
			if a, err = s.Open(ctx, e.handle); err == nil {
				arrays = append(arrays, a)
				continue
			}
		}
		releaseAll(arrays)
		return nil, fmt.Errorf("array %d: %w", i, err)
	}
	return arrays, nil
}

func releaseAll(arrays []*usmarray.Array) {
	for _, a := range arrays {
		a.Release()
	}
}
