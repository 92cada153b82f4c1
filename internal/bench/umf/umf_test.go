//go:build cgo && linux

package umf_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/bench/umf"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func TestMain(m *testing.M) { memtest.Main(m) }

func open(t testing.TB) *umf.Library {
	l, err := umf.Open()
	if err != nil {
		t.Skipf("%v", err)
	}
	return l
}

func TestDisjointPool(t *testing.T) {
	l := open(t)
	t.Logf("UMF %s from %s", l.Version(), l.Path())
	memtest.Run(t, func(t testing.TB) memmgr.Resource {
		p, err := l.NewDisjoint(umf.DeviceParams())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}, memtest.Options{MaxAlign: 4096})
}

func TestOurPoolOverTheirs(t *testing.T) {
	l := open(t)
	memtest.Run(t, func(t testing.TB) memmgr.Resource {
		upstream, err := l.NewDisjoint(umf.DeviceParams())
		require.NoError(t, err)
		p := memmgr.NewPool(upstream)
		t.Cleanup(func() {
			require.NoError(t, p.Close())
			require.NoError(t, upstream.Close())
		})
		return p
	}, memtest.Options{})
}

func TestAddressOnlyPoolCounts(t *testing.T) {
	params := umf.DeviceParams()
	params.AddressOnly = true
	p, err := open(t).NewDisjoint(params)
	require.NoError(t, err)
	b, err := p.Allocate(memmgr.Request{Size: 16 << 20})
	require.NoError(t, err)
	now, peak, calls := p.Provided()
	require.GreaterOrEqual(t, now, int64(16<<20))
	require.GreaterOrEqual(t, peak, now)
	require.NotZero(t, calls)
	require.Error(t, p.Close())
	p.Free(b)
	require.NoError(t, p.Close())
}

func TestClosed(t *testing.T) {
	p, err := open(t).NewDisjoint(umf.DeviceParams())
	require.NoError(t, err)
	b, err := p.Allocate(memmgr.Request{Size: 100})
	require.NoError(t, err)
	require.Error(t, p.Close(), "with a block in use")
	p.Free(b)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.Allocate(memmgr.Request{Size: 100})
	require.ErrorIs(t, err, memmgr.ErrClosed)
	now, peak, calls := p.Provided()
	require.Zero(t, now+peak+calls)
	require.PanicsWithError(t, "memmgr: umf.Pool.Free: 0x1000: resource is closed", func() { p.Free(memmgr.Block{Address: 4096, Size: 1}) })
}

func TestMissingLibraryIsNamed(t *testing.T) {
	_, err := umf.Open("/nowhere/libumf.so")
	require.ErrorContains(t, err, "/nowhere/libumf.so")
	require.ErrorContains(t, err, "pip install umf")
}

// Files that dlopen would crash on, or would block on, are errors.
func TestNoLibraryIsNamed(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "libumf.so")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := umf.Open(pipe, "/dev/zero")
	require.ErrorContains(t, err, pipe+": it is a named pipe")
	require.ErrorContains(t, err, "/dev/zero: it is a device")
}

func TestScalablePool(t *testing.T) {
	l := open(t)
	first, err := l.NewScalable()
	if err != nil {
		t.Skipf("%v", err)
	}
	require.NoError(t, first.Close())
	memtest.Run(t, func(t testing.TB) memmgr.Resource {
		p, err := l.NewScalable()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}, memtest.Options{MaxAlign: 4096})
}
