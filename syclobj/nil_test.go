package syclobj_test

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/syclobj"
)

// TestNilAndZeroReceivers: on a nil pointer, methods that can return an error return ErrNil, Close does
// nothing, and all other methods panic with a nil dereference. Zero values behave like closed objects. No call
// reaches C.
func TestNilAndZeroReceivers(t *testing.T) {
	for _, zero := range []any{&syclobj.Runtime{}, &syclobj.Context{}, &syclobj.Device{}, &syclobj.Platform{}, &syclobj.Queue{}, &syclobj.Place{}, &syclobj.Event{}, &syclobj.Program{}, &syclobj.Kernel{}} {
		typ := reflect.TypeOf(zero)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			t.Run(typ.Elem().Name()+"."+m.Name, func(t *testing.T) {
				none := reflect.Zero(typ)
				err, panicked := callWithZeros(t, m, none)
				switch {
				case m.Name == "Close" || typ == reflect.TypeFor[*syclobj.Event]() && m.Name != "Times":
					require.NoError(t, err, "a nil Event is complete")
					require.False(t, panicked)
				case panicked:
					require.False(t, answersError(m), "a method that can answer an error")
				case answersError(m):
					if typ == reflect.TypeFor[*syclobj.Event]() {
						require.ErrorIs(t, err, syclobj.ErrArgument)
					} else {
						require.ErrorIs(t, err, syclobj.ErrNil)
					}
				}
				callWithZeros(t, m, reflect.ValueOf(zero))
			})
		}
	}
}

// answersError selects methods that can fail; SYCLError returns an error as its result.
func answersError(m reflect.Method) bool {
	n := m.Type.NumOut()
	return n > 0 && m.Name != "SYCLError" && m.Type.Out(n-1) == reflect.TypeFor[error]()
}

// callWithZeros calls the method with zero values and returns the result. Only Go's
// own runtime errors may be panics.
func callWithZeros(t *testing.T, m reflect.Method, receiver reflect.Value) (err error, panicked bool) {
	t.Helper()
	args := []reflect.Value{receiver}
	for i := 1; i < m.Type.NumIn(); i++ {
		if i == m.Type.NumIn()-1 && m.Type.IsVariadic() {
			break
		}
		switch in := m.Type.In(i); in.String() {
		case "context.Context":
			args = append(args, reflect.ValueOf(t.Context()))
		case "[]uint8": // a pattern that Fill takes
			args = append(args, reflect.ValueOf([]byte{0}))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	defer func() {
		if v := recover(); v != nil {
			require.Implements(t, (*runtime.Error)(nil), v)
			panicked = true
		}
	}()
	out := m.Func.Call(args)
	if answersError(m) {
		err, _ = out[len(out)-1].Interface().(error)
	}
	return err, false
}
