package usmarray

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
)

// misuse runs fn and returns the value of its panic, nil if it returned.
func misuse(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

// callAll calls every method of *Array on a, with meaningless arguments, and returns the value of each
// panic.
func callAll(a *Array) map[string]any {
	v := reflect.ValueOf(a)
	panics := map[string]any{}
	for i := range v.NumMethod() {
		var args []reflect.Value
		m := v.Method(i)
		for k := range m.Type().NumIn() {
			if m.Type().IsVariadic() && k == m.Type().NumIn()-1 {
				break
			}
			arg := reflect.Zero(m.Type().In(k))
			if arg.Type() == reflect.TypeFor[context.Context]() {
				arg = reflect.ValueOf(context.Background())
			}
			args = append(args, arg)
		}
		panics[v.Type().Method(i).Name] = misuse(func() { m.Call(args) })
	}
	return panics
}

// TestInvalidArrays: descriptions of a released, nil or zero array do not panic; everything else panics
// with a *UseError.
func TestInvalidArrays(t *testing.T) {
	released := testenv.Must(Zeros(memmgr.Host(), Float32, []int{2, 3}))(t)
	view := released.AsReadOnly()
	released.Release()
	never := map[string]bool{"Release": true, "Valid": true, "String": true, "GoString": true}
	described := map[string]bool{
		"DataType": true, "Layout": true, "NDim": true, "Shape": true, "Strides": true, "Size": true,
		"NBytes": true, "Padded": true, "IsC": true, "IsF": true,
	}
	for _, c := range []struct {
		name string
		a    *Array
		kept map[string]bool // the description
	}{
		{"nil", nil, nil},
		{"zero", new(Array), described},
		{"released", released, described},
		{"view of released", view, described},
	} {
		t.Run(c.name, func(t *testing.T) {
			for method, value := range callAll(c.a) {
				if never[method] || c.kept[method] {
					require.Nil(t, value, method)
					continue
				}
				var use *UseError
				require.IsType(t, use, value, method)
				use = value.(*UseError)
				require.Equal(t, method, use.Op)
				require.ErrorIs(t, use, memmgr.ErrReleased, method)
				require.NotErrorIs(t, use, ErrReadOnly)
			}
			require.Equal(t, "<released array>", c.a.String())
			require.False(t, c.a.Valid())
		})
	}
}

// TestNilArguments: a nil argument is an error that names it, or the panic of a nil array.
func TestNilArguments(t *testing.T) {
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{2}))(t)
	x := []float32{1, 2}
	for name, fn := range map[string]func(){
		"CopyFrom":      func() { _ = a.CopyFrom(nil) },
		"Slice":         func() { _, _ = Slice[float32](nil) },
		"View":          func() { _ = View(nil, func([]float32) error { return nil }) },
		"ReadView":      func() { _ = ReadView(nil, func([]float32) error { return nil }) },
		"ToSlice":       func() { _, _ = ToSlice[float32](nil) },
		"CopyFromSlice": func() { _ = CopyFromSlice(nil, x) },
	} {
		use, ok := misuse(fn).(*UseError)
		require.True(t, ok, name)
		require.Equal(t, name, use.Op)
	}
	for name, fn := range map[string]func() (*Array, error){
		"New":       func() (*Array, error) { return New(nil, Float32, []int{2}) },
		"Zeros":     func() (*Array, error) { return Zeros(nil, Float32, []int{2}) },
		"Full":      func() (*Array, error) { return Full(nil, Float32, []int{2}, 1) },
		"FromSlice": func() (*Array, error) { return FromSlice(nil, x, nil) },
		"Arange":    func() (*Array, error) { return Arange[float32](nil, 0, 1, 2) },
		"Copy":      func() (*Array, error) { return a.Copy(nil) },
		"ToDevice":  func() (*Array, error) { return a.ToDevice(nil) },
		"AsType":    func() (*Array, error) { return a.AsType(nil, Int8) },
	} {
		_, err := fn()
		require.ErrorIs(t, err, memmgr.ErrRequest, name)
		require.ErrorContains(t, err, "resource is nil", name)
	}
	for _, form := range []SyclObj{
		{}, {Filter: "opencl:cpu:0"}, {Context: nil}, {Queue: nil},
	} {
		_, _, err := QueueOn(nil, form)
		require.ErrorIs(t, err, ErrInterface, "%v", form)
		d := USMInterface{Shape: []int{1}, TypeStr: "<f4", Data: 4096, Version: 1, SyclObj: form}
		require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(nil, &d, nil)), ErrInterface, "%v", form)
	}
	require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(testsycl.Runtime(t), nil, nil)), ErrInterface)
	require.Empty(t, XPUDevices(nil))
	if !dlpack.Supported() {
		return
	}
	// A tensor of plain memory needs no runtime; one of SYCL's does.
	tensor := testenv.Must(a.DLPack())(t)
	require.Equal(t, a.Pointer(), testenv.Held(FromDLPack(nil, tensor))(t).Pointer())
	oneAPI := dlpack.View{Data: a.Pointer(), Device: dlpack.Device{Type: dlpack.DeviceOneAPI}, DataType: Float32, Shape: []int64{2}}
	tensor = testenv.Held(dlpack.Export(&oneAPI, 0, true, dlpack.Owner{}))(t)
	testenv.Failed(t, testenv.ErrorOf(FromDLPack(nil, tensor)), ErrExchange, "Runtime is nil")
	require.True(t, tensor.Valid())
}

// releasing is a resource that releases an array while memory is allocated for its copy.
type releasing struct {
	memmgr.Resource
	a *Array
}

func (r releasing) Allocate(q memmgr.Request) (memmgr.Block, error) {
	r.a.Release()
	return r.Resource.Allocate(q)
}

// TestReleaseDuringOperation: a release during an operation takes effect afterwards.
func TestReleaseDuringOperation(t *testing.T) {
	for name, op := range map[string]func(a *Array, r memmgr.Resource) (*Array, error){
		"Copy":     func(a *Array, r memmgr.Resource) (*Array, error) { return a.Copy(r) },
		"AsType":   func(a *Array, r memmgr.Resource) (*Array, error) { return a.AsType(r, Int64) },
		"ToDevice": func(a *Array, r memmgr.Resource) (*Array, error) { return a.Copy(r, FortranOrder()) },
	} {
		a := testenv.Must(Arange[int32](memmgr.Host(), 0, 1, 5))(t)
		b, err := op(a, releasing{memmgr.Host(), a})
		require.NoError(t, err, name)
		require.Equal(t, "[0 1 2 3 4]", b.String(), name)
		require.False(t, a.Valid())
		b.Release()
	}
	a := testenv.Must(Zeros(memmgr.Host(), Float32, []int{3}))(t)
	require.NoError(t, View(a, func(v []float32) error {
		a.Release()
		v[0] = 1 // the memory is valid until the function returns
		return nil
	}))
}

// TestUseRacingWithRelease: a use concurrent with a release succeeds or panics with this package's type.
func TestUseRacingWithRelease(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor: nothing runs at the same time")
	}
	uses := map[string]func(a *Array) error{
		"ReadOnly": func(a *Array) error { a.ReadOnly(); return nil },
		"Pointer":  func(a *Array) error { a.Pointer(); return nil },
		"Retain":   func(a *Array) error { a.Retain().Release(); return nil },
		"Fill":     func(a *Array) error { return a.Fill(1) },
		"At":       func(a *Array) error { _, err := a.At(0); return err },
		"SetAt":    func(a *Array) error { return a.SetAt(1, 0) },
		"Format":   func(a *Array) error { _, err := a.Format(PrintOptions{}); return err },
		"String":   func(a *Array) error { _ = a.String(); return nil },
		"CopyFrom": func(a *Array) error { return a.CopyFrom(a) },
		"ToSlice":  func(a *Array) error { _, err := ToSlice[int32](a); return err },
		"View":     func(a *Array) error { return View(a, func([]int32) error { return nil }) },
		"Wait":     func(a *Array) error { return a.Wait() },
	}
	if dlpack.Supported() {
		uses["DLPack"] = func(a *Array) error {
			x, err := a.DLPack()
			x.Release()
			return err
		}
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			for range 3000 {
				a := testenv.Must(New(memmgr.Host(), Int32, []int{4}))(t)
				var wg sync.WaitGroup
				start := make(chan struct{})
				wg.Go(func() {
					<-start
					a.Release()
				})
				close(start)
				var err error
				value := misuse(func() { err = use(a) })
				wg.Wait()
				require.NoError(t, err)
				if value != nil {
					require.IsType(t, &UseError{}, value)
				}
			}
		})
	}
}
