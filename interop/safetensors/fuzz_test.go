package safetensors_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// FuzzHeader checks that any file is either refused as invalid, or that its tensors cover it and can be read, written,
// and read again with the same result.
func FuzzHeader(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := safetensors.NewFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			testenv.As[*safetensors.OpError](t, err)
			require.ErrorIs(t, err, safetensors.ErrFormat)
			return
		}
		ctx := context.Background()
		tensors := map[string]*usmarray.Array{}
		defer func() {
			for _, a := range tensors {
				a.Release()
			}
		}()
		total := int64(0)
		for _, i := range file.Tensors() {
			total += i.NBytes
			a, err := file.Read(ctx, i.Name, memmgr.Host(), safetensors.ReadOptions{Readers: 1})
			if i.DataType == (usmarray.DataType{}) {
				require.ErrorIs(t, err, usmarray.ErrType)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, i.Shape, a.Shape())
			require.EqualValues(t, i.NBytes, a.NBytes())
			tensors[i.Name] = a
		}
		require.LessOrEqual(t, total, int64(len(b)))
		var again bytes.Buffer
		require.NoError(t, safetensors.Write(ctx, &again, tensors, safetensors.WriteOptions{Metadata: file.Metadata()}))
		second := testenv.Must(safetensors.NewFile(bytes.NewReader(again.Bytes()), int64(again.Len())))(t)
		require.Len(t, second.Tensors(), len(tensors))
		require.Equal(t, file.Metadata(), second.Metadata())
		for name, a := range tensors {
			c := testenv.Must(second.Read(ctx, name, memmgr.Host(), safetensors.ReadOptions{Readers: 1}))(t)
			require.Equal(t, a.DataType(), c.DataType())
			require.Equal(t, transfertest.Content(t, a), transfertest.Content(t, c))
			c.Release()
		}
	})
}
