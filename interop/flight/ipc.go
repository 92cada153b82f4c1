package flight

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
)

// Column is the name of the only column in the schema of a tensor.
const Column = "tensor"

// RowsKey is a key of the schema's metadata. Its value is the total number of rows, in decimal.
// With it, the receiver allocates all memory at once and reads each batch into its final place.
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
	size   int // bytes of the values
}

// malformed returns an error that matches ErrStream.
func malformed(format string, args ...any) error {
	return kindErr(ErrStream, format, args...)
}

// table is a table of an unverified flatbuffer. Each access checks its own bounds.
type table struct {
	buf    []byte
	at     int
	vtable int
	size   int // bytes of the vtable
}

func u16(b []byte, at int) (int, bool) {
	if at < 0 || at > len(b)-2 {
		return 0, false
	}
	return int(binary.LittleEndian.Uint16(b[at:])), true
}

func u32(b []byte, at int) (int, bool) {
	if at < 0 || at > len(b)-4 {
		return 0, false
	}
	return int(binary.LittleEndian.Uint32(b[at:])), true
}

func i64(b []byte, at int) (int64, bool) {
	if at < 0 || at > len(b)-8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(b[at:])), true
}

// tableAt returns the table to which the offset at position at refers.
func tableAt(b []byte, at int) (*table, error) {
	to, ok := u32(b, at)
	t := &table{buf: b, at: at + to}
	back, ok2 := u32(b, t.at)
	t.vtable = t.at - int(int32(back))
	size, ok3 := u16(b, t.vtable)
	if t.size = size; !ok || !ok2 || !ok3 || size < 4 || t.vtable > len(b)-size {
		return nil, malformed("an IPC header with an offset outside of its %d bytes", len(b))
	}
	return t, nil
}

// field returns the position of a field, or 0 if the field is absent.
func (t *table) field(i int) int {
	if 4+2*i+2 > t.size {
		return 0
	}
	off, _ := u16(t.buf, t.vtable+4+2*i)
	if off == 0 {
		return 0
	}
	return t.at + off
}

// int64 returns an integer field, or 0 if the field is absent.
func (t *table) int64(i int) (int64, error) {
	at := t.field(i)
	if at == 0 {
		return 0, nil
	}
	v, ok := i64(t.buf, at)
	if !ok {
		return 0, malformed("the IPC header ends within a number")
	}
	return v, nil
}

// pairs returns a vector of structs of two 64-bit integers.
func (t *table) pairs(i int) ([][2]int64, error) {
	at := t.field(i)
	if at == 0 {
		return nil, nil
	}
	to, ok := u32(t.buf, at)
	n, ok2 := u32(t.buf, at+to)
	first := at + to + 4
	if !ok || !ok2 || n > (len(t.buf)-first)/16 {
		return nil, malformed("an IPC header with a list longer than the header")
	}
	p := make([][2]int64, n)
	for k := range p {
		p[k][0], _ = i64(t.buf, first+16*k)
		p[k][1], _ = i64(t.buf, first+16*k+8)
	}
	return p, nil
}

// message parses an IPC message (Message.fbs). It returns the type, the header table and the size
// of the body.
func message(header []byte) (kind int, t *table, body int64, err error) {
	m, err := tableAt(header, 0)
	if err != nil {
		return 0, nil, 0, err
	}
	if at := m.field(1); at > 0 {
		if at >= len(header) {
			return 0, nil, 0, malformed("the IPC header ends within its type")
		}
		kind = int(header[at])
	}
	if body, err = m.int64(3); err != nil {
		return 0, nil, 0, err
	}
	at := m.field(2)
	if at == 0 {
		return 0, nil, 0, malformed("an IPC message without a header")
	}
	t, err = tableAt(header, at)
	return kind, t, body, err
}

// parseBatch parses the header of a record batch of tensors with the given number of elements and
// bytes per element. It checks that the batch has one column without nulls, and that its values lie
// within the body. The result is consistent for arbitrary input.
func parseBatch(header []byte, elements, width int) (b batch, err error) {
	kind, t, body, err := message(header)
	if err != nil {
		return b, err
	}
	if kind != headerBatch {
		return b, malformed("an IPC message of type %d, want a record batch", kind)
	}
	rows, err := t.int64(0)
	if err != nil {
		return b, err
	}
	nodes, err := t.pairs(1)
	if err != nil {
		return b, err
	}
	buffers, err := t.pairs(2)
	if err != nil {
		return b, err
	}
	row := int64(elements) * int64(width)
	switch {
	case t.field(3) != 0:
		return b, malformed("compressed bodies are not supported; write without compression")
	case rows < 0 || rows > math.MaxInt64/row || body < 0 || body > math.MaxInt32<<10:
		return b, malformed("%d rows of %d bytes do not fit a body of %d bytes", rows, row, body)
	case len(nodes) != 2 || len(buffers) != 3:
		return b, malformed("a batch with %d arrays and %d buffers, want 2 and 3 for a column of tensors", len(nodes), len(buffers))
	case nodes[0][0] != rows || nodes[1][0] != rows*int64(elements):
		return b, malformed("arrays of %d and %d elements in a batch of %d tensors with %d elements", nodes[0][0], nodes[1][0], rows, elements)
	case nodes[0][1] != 0 || nodes[1][1] != 0:
		return b, fmt.Errorf("%w: %d rows and %d elements are null; replace the nulls first", usmarrow.ErrNulls, nodes[0][1], nodes[1][1])
	}
	offset, size := buffers[2][0], buffers[2][1]
	if offset < 0 || size < rows*row || offset > body || size > body-offset {
		return b, malformed("values of %d bytes at offset %d in a body of %d bytes, want %d rows of %d bytes", size, offset, body, rows, row)
	}
	return batch{rows: int(rows), body: int(body), offset: int(offset), size: int(rows * row)}, nil
}

// parseSchema parses an IPC message with a schema. It returns the schema and its tensor type.
func parseSchema(header []byte) (*arrow.Schema, *usmarrow.TensorType, error) {
	kind, t, body, err := message(header)
	if err != nil {
		return nil, nil, err
	}
	if kind != headerSchema || body != 0 {
		return nil, nil, malformed("an IPC message of type %d with a body of %d bytes, want a schema", kind, body)
	}
	if err := checkSchema(t); err != nil {
		return nil, nil, err
	}
	schema, err := readSchema(header)
	if err != nil {
		return nil, nil, err
	}
	typ, err := tensorType(schema)
	return schema, typ, err
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
func checkSchema(schema *table) error {
	left := maxTables
	if err := checkTables(schema, schemaMetadata, &left, nil); err != nil {
		return err
	}
	return checkTables(schema, schemaFields, &left, checkField)
}

// checkField checks the vectors of a field and of its children.
func checkField(f *table, left *int) error {
	if err := checkTables(f, fieldKeyValue, left, nil); err != nil {
		return err
	}
	return checkTables(f, fieldChildren, left, checkField)
}

// checkTables checks a vector of tables, and calls check for each table. It subtracts the number of
// tables from left.
func checkTables(t *table, i int, left *int, check func(*table, *int) error) error {
	at := t.field(i)
	if at == 0 {
		return nil
	}
	to, ok := u32(t.buf, at)
	n, ok2 := u32(t.buf, at+to)
	if !ok || !ok2 {
		return malformed("a schema with a list outside of its %d bytes", len(t.buf))
	}
	if *left -= n; *left < 0 {
		return malformed("a schema with more than %d list entries; a tensor has one column", maxTables)
	}
	for k := range n {
		f, err := tableAt(t.buf, at+to+4+4*k)
		if err == nil && check != nil {
			err = check(f, left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// streamedSchema is like parseSchema for the schema in a FlightInfo, which is the beginning of an
// IPC stream.
func streamedSchema(b []byte) (*arrow.Schema, *usmarrow.TensorType, error) {
	n, _ := u32(b, 0)
	if n == math.MaxUint32 {
		b = b[4:]
		n, _ = u32(b, 0)
	}
	if n == 0 || n > len(b)-4 {
		return nil, nil, malformed("a schema with a declared length of %d bytes in a field of %d bytes", n, len(b))
	}
	return parseSchema(b[4 : 4+n])
}

// readSchema parses a schema with arrow-go, which panics on some invalid input.
func readSchema(header []byte) (schema *arrow.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			schema, err = nil, malformed("invalid schema: %v", r)
		}
	}()
	padded := (len(header) + 7) &^ 7
	stream := make([]byte, 8, 16+padded)
	binary.LittleEndian.PutUint32(stream, math.MaxUint32)
	binary.LittleEndian.PutUint32(stream[4:], uint32(padded))
	stream = append(stream, header...)
	stream = append(stream, make([]byte, 16+padded-len(stream))...)
	binary.LittleEndian.PutUint32(stream[8+padded:], math.MaxUint32)
	r, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		return nil, malformed("invalid schema: %v", err)
	}
	defer r.Release()
	return r.Schema(), nil
}

// tensorType returns the type of the only column of a tensor's schema.
func tensorType(schema *arrow.Schema) (*usmarrow.TensorType, error) {
	if schema.NumFields() != 1 || schema.Field(0).Name != Column {
		return nil, malformed("a schema with the fields %v, want one column named %q", schema.Fields(), Column)
	}
	t, ok := schema.Field(0).Type.(arrow.ExtensionType)
	if !ok || t.ExtensionName() != usmarrow.TensorName {
		return nil, malformed("column %q has type %v, not %s", Column, schema.Field(0).Type, usmarrow.TensorName)
	}
	parsed, err := new(usmarrow.TensorType).Deserialize(t.StorageType(), t.Serialize())
	if err != nil {
		return nil, err
	}
	typ := parsed.(*usmarrow.TensorType)
	_, err = usmarrow.DataType(typ.Values())
	return typ, err
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
	n := int(t.StorageType().(*arrow.FixedSizeListType).Len())
	inner := array.NewData(t.Values(), rows*n, []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0)
	defer inner.Release()
	list := array.NewData(t, rows, []*memory.Buffer{nil}, []arrow.ArrayData{inner}, 0, 0)
	defer list.Release()
	column := array.MakeFromData(list)
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
