//go:build linux && cgo

package dlpack_test

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestDroppedOnce: each way to end a tensor drops its owner once.
func TestDroppedOnce(t *testing.T) {
	p := memory(t, 64)
	for name, end := range map[string]func(*testing.T, dlpack.Tensor){
		"release":       func(_ *testing.T, x dlpack.Tensor) { x.Release() },
		"release twice": func(_ *testing.T, x dlpack.Tensor) { x.Release(); x.Release() },
		"deferred release after detach": func(_ *testing.T, x dlpack.Tensor) {
			defer x.Release()
			dlpack.Delete(x.Detach())
		},
		"a foreign thread": func(t *testing.T, x dlpack.Tensor) { require.True(t, cpeer.DeleteOnThread(x.Detach())) },
		"a consumer in C":  func(t *testing.T, x dlpack.Tensor) { require.Zero(t, cpeer.Sum(x.Detach())) },
		"imported again": func(t *testing.T, x dlpack.Tensor) {
			y := testenv.Must(dlpack.Import(x.Detach()))(t)
			require.False(t, x.Valid())
			y.Release()
			x.Release()
		},
		"many releasers": func(t *testing.T, x dlpack.Tensor) {
			testenv.Together(t, 8, func(int) error { x.Release(); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, versioned := range []bool{true, false} {
				owner := cpeer.NewOwner()
				x := testenv.Must(exportView(f32(p, dlpack.CPU, []int64{2, 2}, nil), 0, versioned, owner.DLPack()))(t)
				require.Zero(t, owner.Drops())
				end(t, x)
				require.Equal(t, int64(1), owner.Drops())
				require.False(t, x.Valid())
				owner.Free()
			}
		})
	}
}

func TestUseAfterRelease(t *testing.T) {
	p := memory(t, 64)
	stale := testenv.Must(exportView(f32(p, dlpack.CPU, []int64{2}, nil), 0, true, dlpack.Owner{}))(t)
	stale.Release()
	next := testenv.Held(exportView(f32(p, dlpack.CPU, []int64{3}, nil), 0, true, dlpack.Owner{}))(t)
	stale.Release() // must not end the tensor that reuses the slot
	require.True(t, next.Valid())
	for _, x := range []dlpack.Tensor{stale, {}} {
		require.False(t, x.Valid())
		require.Equal(t, "released tensor", x.String())
		for _, use := range map[string]func(){
			"Shape": func() { x.Shape() }, "Strides": func() { x.Strides() }, "Data": func() { x.Data() },
			"Span": func() { x.Span() }, "Device": func() { x.Device() }, "DataType": func() { x.DataType() },
			"Flags": func() { x.Flags() }, "Version": func() { x.Version() }, "NDim": func() { x.NDim() },
			"Detach": func() { x.Detach() }, "Managed": func() { x.Managed() }, "Count": func() { x.Count() },
			"RawData": func() { x.RawData() }, "HasStrides": func() { x.HasStrides() }, "Versioned": func() { x.Versioned() },
		} {
			requirePanicIs(t, dlpack.ErrReleased, use)
		}
	}
	require.Equal(t, "float32[3] on kDLCPU:0", next.String())
}

func TestLive(t *testing.T) {
	p := memory(t, 64)
	before := dlpack.Live()
	var all []dlpack.Tensor
	for range 1500 { // more than two slabs
		x := testenv.Must(exportView(f32(p, dlpack.CPU, []int64{2}, nil), 0, true, dlpack.Owner{}))(t)
		all = append(all, x)
	}
	require.Equal(t, before+1500, dlpack.Live())
	for _, x := range all {
		require.Equal(t, []int64{2}, x.Shape())
		x.Release()
	}
	require.Equal(t, before, dlpack.Live())
}

// TestConcurrent exports, imports and releases tensors in many goroutines.
func TestConcurrent(t *testing.T) {
	p := memory(t, 64)
	owner := cpeer.NewOwner()
	defer owner.Free()
	const workers, rounds = 4, 2000
	passed := make(chan dlpack.Tensor, 16)
	testenv.Together(t, workers, func(int) error {
		for i := range rounds {
			x, err := exportView(f32(p, dlpack.CPU, []int64{2, int64(i % 4)}, nil), 0, i%2 == 0, owner.DLPack())
			if err != nil {
				return err
			}
			passed <- x
			y := <-passed
			z, err := dlpack.Import(y.Detach())
			if err != nil || z.NDim() != 2 || z.Shape()[0] != 2 {
				return fmt.Errorf("another tensor than was passed: %w", err)
			}
			z.Release()
		}
		return nil
	})
	require.Equal(t, int64(workers*rounds), owner.Drops())
}

// TestDeleteInForkedChild: a forked child deletes its copy of a tensor without an effect on this process.
func TestDeleteInForkedChild(t *testing.T) {
	p := memory(t, 64)
	for _, versioned := range []bool{true, false} {
		owner := cpeer.NewOwner()
		x := testenv.Must(exportView(f32(p, dlpack.CPU, []int64{2, 2}, nil), 0, versioned, owner.DLPack()))(t)
		managed, versioned := x.Managed()
		require.Zero(t, cpeer.DeleteInChild(managed, versioned, owner))
		require.Zero(t, owner.Drops())
		x.Release()
		require.EqualValues(t, 1, owner.Drops())
		owner.Free()
	}
}

// TestNoAllocation: exchanges allocate nothing on the Go heap after the first ones.
func TestNoAllocation(t *testing.T) {
	p := memory(t, 64)
	owner := cpeer.NewOwner()
	defer owner.Free()
	pair := owner.DLPack()
	view := f32(p, dlpack.CPU, []int64{2, 2}, []int64{2, 1})
	require.Zero(t, testing.AllocsPerRun(200, func() {
		x, err := exportView(view, 0, true, pair)
		if err != nil {
			panic(err)
		}
		y, err := dlpack.Import(x.Detach())
		if err != nil || y.Shape()[1] != 2 || y.Strides()[0] != 2 {
			panic(err)
		}
		y.Release()
	}))
}

func TestErrorText(t *testing.T) {
	_, err := dlpack.Import(nil, true)
	var e *dlpack.OpError
	require.True(t, errors.As(err, &e))
	require.Equal(t, "Import", e.Op)
	require.Equal(t, "dlpack: Import: no data: there is no memory behind the tensor (NULL): fix the producer", err.Error())
	require.Equal(t, "dlpack: x: bad shape", (&dlpack.OpError{Op: "x", Kind: dlpack.ErrShape}).Error())
}

// TestCInterface tests the functions that only C calls.
func TestCInterface(t *testing.T) {
	require.Equal(t, []string{"dltensor", "used_dltensor", "dltensor_versioned", "used_dltensor_versioned", "dlpack_exchange_api"},
		cpeer.CapsuleNames())

	require.Equal(t, 0, cpeer.FindExchange([]uint32{1}, false))
	require.Equal(t, 1, cpeer.FindExchange([]uint32{2, 1}, false))
	require.Equal(t, 2, cpeer.FindExchange([]uint32{3, 2, 1, 0}, false))
	require.Equal(t, -1, cpeer.FindExchange([]uint32{2, 0}, false))
	require.Equal(t, -1, cpeer.FindExchange([]uint32{3, 2}, true), "a loop ends")
	require.True(t, cpeer.FindNoExchange())

	seen := map[string]bool{}
	p := memory(t, 16)
	managed := cpeer.Produce(fields(f32(p, dlpack.CPU, []int64{2}, nil)))
	defer dlpack.Delete(managed, true)
	for code := range cpeer.Codes {
		general := cpeer.Explain(code, nil, false, 512)
		require.NotEmpty(t, general)
		require.False(t, seen[general], general)
		seen[general] = true
		require.NotEmpty(t, cpeer.Explain(code, managed, true, 512))
		require.Len(t, cpeer.Explain(code, nil, false, 5), 4, "cut and terminated")
	}
	require.Contains(t, cpeer.Explain(99, nil, false, 512), "unknown DLPack error 99")
	require.Contains(t, cpeer.Explain(-1, nil, false, 512), "unknown DLPack error -1")
}

func TestCheckWritesStrides(t *testing.T) {
	p := memory(t, 64)
	check := func(v dlpack.View) ([]int64, int64, int64, int64) {
		managed := cpeer.Produce(fields(v))
		defer dlpack.Delete(managed, true)
		code, strides, count, lo, hi := cpeer.CheckStrides(managed, true)
		require.Zero(t, code)
		return strides, count, lo, hi
	}
	strides, count, lo, hi := check(f32(p, dlpack.CPU, []int64{2, 3, 1}, nil))
	require.Equal(t, []int64{3, 1, 1}, strides)
	require.Equal(t, []int64{6, 0, 24}, []int64{count, lo, hi})
	strides, _, _, _ = check(f32(p, dlpack.CPU, []int64{2, 3}, []int64{-1, 0}))
	require.Equal(t, []int64{-1, 0}, strides)
	strides, count, _, _ = check(f32(p, dlpack.CPU, []int64{2, 0, 3}, nil))
	require.Equal(t, []int64{3, 3, 1}, strides)
	require.Zero(t, count)
}

// TestExportChecked tests the option of the C builder for layouts that were checked before.
func TestExportChecked(t *testing.T) {
	const checked, unknown = 1 << 33, 1 << 34
	p := memory(t, 64)
	managed := cpeer.Produce(fields(f32(unsafe.Add(p, 12), dlpack.OneAPI(1), []int64{2, 2}, []int64{-2, -1})))
	defer dlpack.Delete(managed, true)
	owner := cpeer.NewOwner()
	defer owner.Free()
	plain, code := cpeer.ExportRaw(managed, true, 1, true, owner.DLPack())
	require.Zero(t, code)
	fast, code := cpeer.ExportRaw(managed, true, 1|checked, true, owner.DLPack())
	require.Zero(t, code)
	require.Equal(t, cpeer.Read(plain, true), cpeer.Read(fast, true))
	require.Equal(t, p, cpeer.Read(fast, true).Data)
	dlpack.Delete(plain, true)
	dlpack.Delete(fast, true)
	require.Equal(t, int64(2), owner.Drops())
	_, code = cpeer.ExportRaw(managed, true, unknown, true, owner.DLPack())
	require.NotZero(t, code)
	_, code = cpeer.ExportRaw(managed, true, 1|checked, false, owner.DLPack())
	require.NotZero(t, code, "read-only as legacy, checked or not")
	require.Equal(t, int64(2), owner.Drops())
}
