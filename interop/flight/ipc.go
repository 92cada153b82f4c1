package flight

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
)

// Column is the name of the only column in the schema of a tensor.
const Column = "tensor"

// RowsKey is a key of the schema's metadata. Its value is the total number of rows, in decimal.
// With it, the receiver allocates all memory at once, reads each batch into its final place, and refuses
// a stream with another number of rows. Client.Put sends it.
const RowsKey = "usmbridge.rows"

// Types of IPC messages (MessageHeader in Message.fbs).
const (
	headerSchema = 1
	headerBatch  = 3
)

// batch is the validated header of a record batch with one column of tensors.
type batch struct {
	rows   int
	body   int // bytes of the body
	offset int // of the values in the body, in bytes
}

// malformed returns an error that matches ErrStream.
func malformed(format string, args ...any) error {
	return kindErr(ErrStream, format, args...)
}

// recovered converts a panic of package flatbuffers into an error. The package reads offsets without
// checking them; an offset outside of the header panics in Go's checks of slices.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = malformed("an IPC header with an offset outside of the header: %v", r)
	}
}

// slot returns the position of a field in a flatbuffer's vtable.
func slot(field int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*field) }

// vector returns the position of the elements of a vector, and their number.
func vector(t flatbuffers.Table, field int) (first flatbuffers.UOffsetT, n int) {
	at := flatbuffers.UOffsetT(t.Offset(slot(field)))
	if at == 0 {
		return 0, 0
	}
	return t.Vector(at), t.VectorLen(at)
}

// pairs returns a vector of structs of two 64-bit integers.
func pairs(t flatbuffers.Table, field int) ([][2]int64, error) {
	first, n := vector(t, field)
	if n < 0 || n > (len(t.Bytes)-int(first))/16 {
		return nil, malformed("an IPC header with a list longer than the header")
	}
	p := make([][2]int64, n)
	for k := range p {
		at := first + flatbuffers.UOffsetT(16*k)
		p[k] = [2]int64{t.GetInt64(at), t.GetInt64(at + 8)}
	}
	return p, nil
}

// message parses an IPC message (Message.fbs). It returns the type, the header table and the size
// of the body. It panics if an offset is outside of the message.
func message(header []byte) (kind byte, t flatbuffers.Table, body int64, err error) {
	m := flatbuffers.Table{Bytes: header, Pos: flatbuffers.GetUOffsetT(header)}
	at := flatbuffers.UOffsetT(m.Offset(slot(2)))
	if at == 0 {
		return 0, t, 0, malformed("an IPC message without a header")
	}
	t = flatbuffers.Table{Bytes: header, Pos: m.Indirect(m.Pos + at)}
	return m.GetByteSlot(slot(1), 0), t, m.GetInt64Slot(slot(3), 0), nil
}

// parseBatch parses the header of a record batch of tensors with the given number of elements and
// bytes per element, or of numbers if plain is set. It checks that the batch has one column without nulls, and that
// its values lie within the body. The result is consistent for arbitrary input.
func parseBatch(header []byte, elements, width int, plain bool) (b batch, err error) {
	defer recovered(&err)
	kind, t, body, err := message(header)
	if err != nil {
		return b, err
	}
	if kind != headerBatch {
		return b, malformed("an IPC message of type %d, want a record batch", kind)
	}
	rows := t.GetInt64Slot(slot(0), 0)
	nodes, err := pairs(t, 1)
	if err != nil {
		return b, err
	}
	buffers, err := pairs(t, 2)
	if err != nil {
		return b, err
	}
	row := int64(elements) * int64(width)
	depth := 2 // arrays, of lists and of their values; each has a validity bitmap
	if plain {
		depth = 1
	}
	switch {
	case t.Offset(slot(3)) != 0:
		return b, malformed("compressed bodies are not supported; write without compression")
	case rows < 0 || rows > math.MaxInt64/row || body < 0 || body > math.MaxInt32<<10:
		return b, malformed("%d rows of %d bytes do not fit a body of %d bytes", rows, row, body)
	case len(nodes) != depth || len(buffers) != depth+1:
		return b, malformed("a batch with %d arrays and %d buffers, want %d and %d for this column", len(nodes), len(buffers), depth, depth+1)
	}
	values := nodes[depth-1]
	switch {
	case nodes[0][0] != rows || values[0] != rows*int64(elements):
		return b, malformed("arrays of %d and %d elements in a batch of %d tensors with %d elements", nodes[0][0], values[0], rows, elements)
	case nodes[0][1] != 0 || values[1] != 0:
		return b, fmt.Errorf("%w: %d rows and %d elements are null; replace the nulls first", usmarrow.ErrNulls, nodes[0][1], values[1])
	}
	offset, size := buffers[depth][0], buffers[depth][1]
	if offset < 0 || size < rows*row || offset > body || size > body-offset {
		return b, malformed("values of %d bytes at offset %d in a body of %d bytes, want %d rows of %d bytes", size, offset, body, rows, row)
	}
	return batch{rows: int(rows), body: int(body), offset: int(offset)}, nil
}

// parseSchema parses an IPC message with a schema. It returns the schema and its tensor type. A column of numbers is a
// tensor of one axis; the returned schema is that of the tensor then, and plain is set.
func parseSchema(header []byte) (schema *arrow.Schema, typ *usmarrow.TensorType, plain bool, err error) {
	defer recovered(&err)
	kind, t, body, err := message(header)
	if err != nil {
		return nil, nil, false, err
	}
	if kind != headerSchema || body != 0 {
		return nil, nil, false, malformed("an IPC message of type %d with a body of %d bytes, want a schema", kind, body)
	}
	if err := checkSchema(t); err != nil {
		return nil, nil, false, err
	}
	if schema, err = readSchema(header); err != nil {
		return nil, nil, false, err
	}
	if typ, plain, err = tensorType(schema); plain && err == nil {
		schema = schemaOf(typ, schema.Metadata().ToMap())
	}
	return schema, typ, plain, err
}

// Field numbers of the vectors of tables in Schema.fbs: fields and metadata of a Schema,
// children and metadata of a Field.
const (
	schemaFields, schemaMetadata = 1, 2
	fieldChildren, fieldKeyValue = 5, 6
)

// maxTables limits the tables in the schema of a tensor.
const maxTables = 64

// checkSchema checks the vectors of a schema before arrow-go reads it. arrow-go allocates memory
// for the declared length of a vector, so an excessive length would crash the process.
func checkSchema(schema flatbuffers.Table) error {
	left := maxTables
	if err := checkTables(schema, schemaMetadata, &left, nil); err != nil {
		return err
	}
	return checkTables(schema, schemaFields, &left, checkField)
}

// checkField checks the vectors of a field and of its children.
func checkField(f flatbuffers.Table, left *int) error {
	if err := checkTables(f, fieldKeyValue, left, nil); err != nil {
		return err
	}
	return checkTables(f, fieldChildren, left, checkField)
}

// checkTables checks a vector of tables, and calls check for each table. It subtracts the number of
// tables from left.
func checkTables(t flatbuffers.Table, field int, left *int, check func(flatbuffers.Table, *int) error) error {
	first, n := vector(t, field)
	if n < 0 || n > *left {
		return malformed("a schema with more than %d list entries; a tensor has one column", maxTables)
	}
	*left -= n
	for k := range n {
		f := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(first + flatbuffers.UOffsetT(4*k))}
		f.Offset(slot(0)) // panics if the table is outside of the header
		if check != nil {
			if err := check(f, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamedSchema is like parseSchema for the schema in a FlightInfo, which is the beginning of an
// IPC stream.
func streamedSchema(b []byte) (*arrow.Schema, *usmarrow.TensorType, error) {
	b = bytes.TrimPrefix(b, continuation)
	n := uint32(0)
	if len(b) >= 4 {
		n = binary.LittleEndian.Uint32(b)
	}
	if n == 0 || int64(n) > int64(len(b)-4) {
		return nil, nil, malformed("a schema with a declared length of %d bytes in a field of %d bytes", n, len(b))
	}
	schema, typ, _, err := parseSchema(b[4 : 4+n])
	return schema, typ, err
}

// continuation is the marker before each message of an IPC stream.
var continuation = []byte{0xff, 0xff, 0xff, 0xff}

// readSchema parses a schema with arrow-go, as a stream of one message.
func readSchema(header []byte) (*arrow.Schema, error) {
	stream := binary.LittleEndian.AppendUint32(bytes.Clone(continuation), uint32(len(header)))
	r, err := ipc.NewReader(bytes.NewReader(append(stream, header...)))
	if err != nil {
		return nil, malformed("invalid schema: %v", err)
	}
	defer r.Release()
	return r.Schema(), nil
}

// tensorType returns the type of the only column of a tensor's schema. plain says that it is a column of numbers.
func tensorType(schema *arrow.Schema) (typ *usmarrow.TensorType, plain bool, err error) {
	if schema.NumFields() != 1 || schema.Field(0).Name != Column {
		return nil, false, malformed("a schema with the fields %v, want one column named %q", schema.Fields(), Column)
	}
	column := schema.Field(0).Type
	t, extension := column.(arrow.ExtensionType)
	if _, err := usmarrow.DataType(column); err == nil && !extension {
		typ, err = usmarrow.NewTensorType(column, []int{}, usmarrow.TensorOptions{})
		return typ, true, err
	}
	if !extension || t.ExtensionName() != usmarrow.TensorName {
		return nil, false, malformed("column %q has type %v; want %s, or int8 to int64, uint8 to uint64, float16, float32 or float64 for one axis", Column, column, usmarrow.TensorName)
	}
	parsed, err := new(usmarrow.TensorType).Deserialize(t.StorageType(), t.Serialize())
	if err != nil {
		return nil, false, err
	}
	typ = parsed.(*usmarrow.TensorType)
	_, err = usmarrow.DataType(typ.Values())
	return typ, false, err
}

// schemaOf returns the schema of a tensor.
func schemaOf(t *usmarrow.TensorType, metadata map[string]string) *arrow.Schema {
	m := arrow.MetadataFrom(metadata)
	return arrow.NewSchema([]arrow.Field{{Name: Column, Type: t}}, &m)
}

// schemaHeader returns a schema as an IPC message.
func schemaHeader(s *arrow.Schema) []byte {
	p := ipc.GetSchemaPayload(s, memory.DefaultAllocator)
	defer p.Release()
	m := p.Meta()
	defer m.Release()
	return bytes.Clone(m.Bytes())
}

// batchHeader returns the IPC message for a batch of rows with the given values, and the number of
// padding bytes after the values in the body. It does not read the values.
func batchHeader(s *arrow.Schema, t *usmarrow.TensorType, rows int, values []byte) (header []byte, padding int, err error) {
	column := usmarrow.NewTensorArray(t, rows, memory.NewBufferBytes(values))
	defer column.Release()
	record := array.NewRecordBatch(s, []arrow.Array{column}, int64(rows))
	defer record.Release()
	p, err := ipc.GetRecordBatchPayload(record)
	if err != nil {
		return nil, 0, err
	}
	defer p.Release()
	m := p.Meta()
	defer m.Release()
	header = bytes.Clone(m.Bytes())
	_, _, body, err := message(header)
	return header, int(body) - len(values), err
}
