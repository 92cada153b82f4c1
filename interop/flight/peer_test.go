package flight

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
)

// python runs a script with an interpreter that has pyarrow.
func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	exe := testenv.Interpreter(t, "import pyarrow.flight")
	cmd := exec.CommandContext(t.Context(), exe, append([]string{script}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s", out.String())
	return out.String()
}

// pyarrow's client writes and reads the same tensors, gets the specified errors, and finds its
// values aligned.
func TestPyarrow(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		b := newTestbed(t, func(o *ServerOptions) {
			o.MaxTensor = 100 << 20
			o.Limits.MaxMessage = 64 << 20
			if token != "" {
				o.Tokens = []string{"other", token}
			}
		})
		client := dial(t, b.at.String(), ClientOptions{Token: token})
		data := make([]float32, 60)
		a := numbers(t, b.mine, 5, 4, 3)
		for i := range data {
			require.NoError(t, a.SetAt(float32(i), i/12, i/3%4, i%3))
		}
		require.NoError(t, client.Put(t.Context(), "from go", a))
		a.Release()
		args := []string{b.at.String()}
		if token != "" {
			args = append(args, token)
		}
		out := python(t, "testdata/pyarrow_peer.py", args...)
		require.Contains(t, out, "done")
		require.Contains(t, out, "alignment 0\n")
		got := testenv.Must(client.Get(t.Context(), "part", b.mine))(t)
		require.Equal(t, []int{2, 2, 3}, got.Shape())
		require.EqualValues(t, 17, testenv.Must(got.At(1, 1, 2))(t))
		got.Release()
		got = testenv.Must(client.Get(t.Context(), "named", b.mine))(t)
		require.Equal(t, []int{4, 3, 2}, got.Shape())
		require.Equal(t, []int{6, 1, 3}, got.Strides())
		got.Release()
	}
}

// arrow-go's own client, without package codec, reads and writes tensors.
func TestStockClient(t *testing.T) {
	b := newTestbed(t, nil)
	conn := testenv.Must(grpc.NewClient("unix://"+b.at.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30))))(t)
	defer conn.Close()
	c := flight.NewClientFromConn(conn, nil)
	a := numbers(t, b.mine, 1000, 30, 40)
	column := testenv.Must(usmarrow.ToArrow(a))(t)
	schema := arrow.NewSchema([]arrow.Field{{Name: Column, Type: column.DataType()}}, nil)
	record := array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
	column.Release()

	put := testenv.Must(c.DoPut(t.Context()))(t)
	w := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"stock"}})
	for _, cut := range [][2]int64{{0, 300}, {300, 301}, {301, 301}, {301, 1000}} {
		part := record.NewSlice(cut[0], cut[1])
		require.NoError(t, w.WriteWithAppMetadata(part, []byte("ignored")))
		part.Release()
	}
	record.Release()
	require.NoError(t, w.Close())
	require.NoError(t, put.CloseSend())
	require.JSONEq(t, `{"rows":1000,"bytes":4800000}`, string(testenv.Must(put.Recv())(t).AppMetadata))
	require.ErrorIs(t, testenv.ErrorOf(put.Recv()), io.EOF)

	sameCopy(t, a, testenv.Must(b.client.Get(t.Context(), "stock", b.mine))(t))

	get := testenv.Must(c.DoGet(t.Context(), &flight.Ticket{Ticket: []byte("stock")}))(t)
	r := testenv.Must(flight.NewRecordReader(get))(t)
	defer r.Release()
	rows := 0
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		part := testenv.Must(usmarrow.FromArrow(record.Column(0)))(t)
		require.Equal(t, testenv.Must(a.At(rows, 0, 1))(t), testenv.Must(part.At(0, 0, 1))(t))
		rows += part.Shape()[0]
		part.Release()
	}
	require.Equal(t, 1000, rows)
	_, sending := codec.Outstanding()
	require.Zero(t, sending)
}
