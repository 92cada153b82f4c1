package flight

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// tensor is a tensor in a store, or one that is being received. A tensor in a store is immutable.
// Its memory is released with the last reference.
type tensor struct {
	schema *arrow.Schema
	typ    *usmarrow.TensorType
	width  int // bytes per row
	rows   int
	chunks []chunk
	refs   atomic.Int64
}

// chunk is the memory of consecutive rows.
type chunk struct {
	buffer memmgr.Buffer
	offset int // of the first row, in bytes
	rows   int // rows received
	room   int // capacity in rows
}

// newTensor returns a tensor without rows and with one reference.
func newTensor(schema *arrow.Schema, t *usmarrow.TensorType) *tensor {
	n := &tensor{schema: schema, typ: t, width: t.Len() * t.Values().(arrow.FixedWidthDataType).Bytes()}
	n.refs.Store(1)
	return n
}

func (t *tensor) bytes() int64 { return int64(t.rows) * int64(t.width) }

// retain adds a reference. It returns false if the last reference was released before.
func (t *tensor) retain() bool {
	for {
		n := t.refs.Load()
		if n == 0 {
			return false
		}
		if t.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release releases a reference.
func (t *tensor) release() {
	if t.refs.Add(-1) > 0 {
		return
	}
	for _, c := range t.chunks {
		c.buffer.Release()
	}
	t.chunks = nil
}

// fromArray returns a tensor on the memory of an array. The tensor holds its own reference of the
// memory.
func fromArray(a *usmarray.Array) (*tensor, error) {
	typ, rows, err := usmarrow.TypeOf(a)
	if err != nil {
		return nil, err
	}
	t := newTensor(schemaOf(typ, nil), typ)
	t.rows = rows
	if rows > 0 {
		b := a.Buffer().Retain()
		t.chunks = []chunk{{buffer: b, offset: int(uintptr(a.Pointer()) - b.Address()), rows: rows, room: rows}}
	}
	return t, nil
}

// array returns the tensor as an array: on the tensor's memory if it is one chunk, otherwise as a
// copy in memory of r. The caller owns the array.
func (t *tensor) array(ctx context.Context, r memmgr.Resource) (*usmarray.Array, error) {
	dtype, err := usmarrow.DataType(t.typ.Values())
	if err != nil {
		return nil, err
	}
	width := t.width / t.typ.Len()
	one := chunk{}
	if len(t.chunks) == 1 && t.chunks[0].offset%width == 0 {
		one = t.chunks[0]
		one.buffer.Retain()
	} else if one, err = t.gather(ctx, r); err != nil {
		return nil, err
	}
	shape := append([]int{t.rows}, t.typ.Shape()...)
	l, err := usmarray.NewLayout(shape, nil, one.offset/width)
	if err == nil {
		var a *usmarray.Array
		if a, err = usmarray.FromBuffer(one.buffer, dtype, l); err == nil {
			return t.typ.InOrder(a)
		}
	}
	one.buffer.Release()
	return nil, err
}

// gather copies all chunks into one.
func (t *tensor) gather(ctx context.Context, r memmgr.Resource) (chunk, error) {
	buffer, err := memmgr.New(r, memmgr.Request{Size: uintptr(t.bytes()), Tag: "flight", Context: ctx})
	if err != nil {
		return chunk{}, err
	}
	at := uint64(0)
	for _, c := range t.chunks {
		n := uint64(c.rows) * uint64(t.width)
		if err := memmgr.CopyBuffer(buffer, at, c.buffer, uint64(c.offset), n); err != nil {
			buffer.Release()
			return chunk{}, err
		}
		at += n
	}
	return chunk{buffer: buffer, rows: t.rows, room: t.rows}, nil
}

// builder assembles a received tensor.
type builder struct {
	tensor *tensor
	plain  bool // the column has numbers, not lists of them
	from   memmgr.Resource
	ctx    context.Context
	wait   time.Duration // for memory
	want   int           // announced number of rows; -1 if not announced
	stage  *stage        // for memory that the host cannot write; else nil
	limit  int64         // largest allowed size of the tensor, in bytes
}

// growth limits the spare capacity of a new chunk, in bytes. Spare capacity keeps the number of
// chunks low for many small batches.
const growth = 16 << 20

// message receives a record batch with a body of n bytes, which are the next bytes of the message.
func (b *builder) message(d *data, in *codec.Incoming, n int) error {
	rec, err := parseBatch(d.header, b.tensor.typ.Len(), b.tensor.width/b.tensor.typ.Len(), b.plain)
	if err != nil {
		return err
	}
	if rec.body > n {
		return malformed("a body of %d bytes, want %d as in the header", n, rec.body)
	}
	return b.batch(in, rec)
}

// batch receives the values of a record batch, which are the next bytes of the message. It
// allocates the memory before it reads them.
func (b *builder) batch(in *codec.Incoming, rec batch) error {
	t := b.tensor
	total := int64(t.rows) + int64(rec.rows)
	if b.want >= 0 && total > int64(b.want) {
		return malformed("%d rows, but %d were announced (%s)", total, b.want, RowsKey)
	}
	if total*int64(t.width) > b.limit {
		return limitError("bytes of a tensor", total*int64(t.width), b.limit)
	}
	if err := in.Discard(rec.offset); err != nil {
		return err
	}
	if err := b.reserve(rec.rows); err != nil {
		return err
	}
	for left := rec.rows; left > 0; {
		c := &t.chunks[len(t.chunks)-1]
		for i := range t.chunks { // the first chunk with free capacity
			if t.chunks[i].rows < t.chunks[i].room {
				c = &t.chunks[i]
				break
			}
		}
		k := min(left, c.room-c.rows)
		if err := b.read(in, c.buffer, c.offset+c.rows*t.width, k*t.width); err != nil {
			return err
		}
		c.rows += k
		t.rows += k
		left -= k
	}
	return nil
}

// reserve ensures capacity for the given number of further rows.
func (b *builder) reserve(rows int) error {
	t := b.tensor
	if n := len(t.chunks); n > 0 {
		rows -= t.chunks[n-1].room - t.chunks[n-1].rows
	}
	if rows <= 0 {
		return nil
	}
	room := max(rows, int(min(t.bytes()/4, growth))/t.width)
	if len(t.chunks) == 0 && b.want >= 0 {
		room = b.want
	}
	room = int(max(int64(rows), min(int64(room), b.limit/int64(t.width)-int64(t.rows))))
	ctx, cancel := context.WithTimeout(b.ctx, b.wait)
	defer cancel()
	request := memmgr.Request{Size: uintptr(room) * uintptr(t.width), Tag: "flight", Context: ctx}
	if b.wait <= 0 {
		request.Context = nil
	}
	buffer, err := memmgr.New(b.from, request)
	if err != nil {
		return err
	}
	t.chunks = append(t.chunks, chunk{buffer: buffer, room: room})
	return nil
}

// read reads n bytes of the message into the buffer to at offset at.
func (b *builder) read(in *codec.Incoming, to memmgr.Buffer, at, n int) error {
	if b.stage != nil {
		return b.stage.receive(b.ctx, in, to, at, n)
	}
	data, err := to.Bytes()
	if err != nil {
		return err
	}
	return in.ReadFull(data[at : at+n])
}

// done checks a complete tensor against the announced number of rows.
func (b *builder) done() error {
	if b.want >= 0 && b.tensor.rows != b.want {
		return malformed("%d rows, but %d were announced (%s)", b.tensor.rows, b.want, RowsKey)
	}
	return nil
}
