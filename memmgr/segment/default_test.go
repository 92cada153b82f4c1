package segment_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

func hostDefault(t *testing.T, a segment.Audience) *memmgr.Pool {
	t.Helper()
	r, err := segment.Default(nil, syclobj.USMUnknown, a)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return r
}

// There is one shared pool of segments for each audience. Defaults lists these pools, and CloseDefaults closes them.
func TestDefault(t *testing.T) {
	t.Cleanup(func() { require.NoError(t, memmgr.CloseDefaults()) })
	write, read := hostDefault(t, segment.PeersWrite), hostDefault(t, segment.PeersRead)
	require.Same(t, write, hostDefault(t, segment.PeersWrite))
	require.NotSame(t, write, read)
	plain := testenv.Must(memmgr.Default(nil, syclobj.USMUnknown))(t)
	require.NotContains(t, []*memmgr.Pool{write, read}, plain)
	require.Subset(t, memmgr.Pools(), []*memmgr.Pool{write, read, plain})

	for _, r := range []*memmgr.Pool{write, read} {
		b := testenv.Must(memmgr.New(r, memmgr.Request{Size: 1000}))(t)
		s, _, ok := segment.Find(b.Address(), b.Size())
		require.True(t, ok)
		require.Equal(t, r == write, s.Audience() == segment.PeersWrite)
		b.Release()
	}
	require.NoError(t, memmgr.CloseDefaults())
	require.NotSame(t, write, hostDefault(t, segment.PeersWrite))

	require.ErrorIs(t, testenv.ErrorOf(segment.Default(nil, syclobj.USMUnknown, 0)), segment.ErrAudience)
}

// The limit of the shared pools counts segments too.
func TestDefaultLimit(t *testing.T) {
	t.Cleanup(func() { require.NoError(t, memmgr.CloseDefaults()) })
	r := hostDefault(t, segment.PeersRead)
	memmgr.SetDefaultLimit(1 << 20)
	defer memmgr.SetDefaultLimit(0)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(r, memmgr.Request{Size: 64 << 20})), memmgr.ErrOutOfMemory)
	memmgr.SetDefaultLimit(0)
	testenv.Must(memmgr.New(r, memmgr.Request{Size: 64 << 20}))(t).Release()
}
