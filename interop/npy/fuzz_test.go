package npy_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// FuzzHeader checks that any file is either refused with an error of a known kind, or can be read, written, and
// read again with the same result.
func FuzzHeader(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := npy.NewFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			testenv.As[*npy.OpError](t, err)
			require.True(t, isKnown(err), "%v", err)
			return
		}
		h := file.Header()
		require.LessOrEqual(t, h.DataOffset+h.NBytes, int64(len(b)))
		ctx := context.Background()
		a := testenv.Held(file.Read(ctx, memmgr.Host(), npy.ReadOptions{Readers: 1}))(t)
		require.Equal(t, h.Shape, a.Shape())
		require.EqualValues(t, h.NBytes, a.NBytes())
		var again bytes.Buffer
		require.NoError(t, npy.Write(ctx, &again, a))
		second := testenv.Must(npy.NewFile(bytes.NewReader(again.Bytes()), int64(again.Len())))(t)
		require.Equal(t, h.Shape, second.Header().Shape)
		require.Equal(t, h.DataType, second.Header().DataType)
		c := testenv.Held(second.Read(ctx, memmgr.Host(), npy.ReadOptions{Readers: 1}))(t)
		require.Equal(t, transfertest.Content(t, a), transfertest.Content(t, c))
		if len(h.Shape) > 0 && h.Shape[0] > 1 {
			row := testenv.Held(file.ReadRows(ctx, memmgr.Host(), 1, 2, npy.ReadOptions{Readers: 1}))(t)
			require.Equal(t, transfertest.Content(t, testenv.Must(a.Index(usmarray.IndexRange(1, 2)))(t)), transfertest.Content(t, row))
		}
	})
}
