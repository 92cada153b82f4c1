package arch

import (
	"errors"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/cute"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// TestErrorsShareAShape checks the shape of errors that CONTRIBUTING.md describes: the operation in Op,
// the kind in Kind, the problem in Err, a text that begins with package and operation, and an Unwrap
// through which errors.Is and errors.As find kind and problem.
//
// The last group of types has no Kind, because their Err always wraps one of package syclobj or usmarray.
// The errors of package cute have the texts of CuTe DSL, which name no operation. python.Error is an
// exception. Nested modules check their own types.
func TestErrorsShareAShape(t *testing.T) {
	kind, problem := errors.New("kind"), errors.New("problem")
	check := func(e error, kinds bool) {
		of := reflect.TypeOf(e).Elem()
		set := func(name string, value any) {
			f := reflect.ValueOf(e).Elem().FieldByName(name)
			require.True(t, f.IsValid(), "%v has no field %s", of, name)
			f.Set(reflect.ValueOf(value))
		}
		set("Op", "Do")
		set("Err", problem)
		if kinds {
			set("Kind", kind)
			require.ErrorIs(t, e, kind, of)
		}
		require.ErrorIs(t, e, problem, of)
		require.True(t, strings.HasPrefix(e.Error(), path.Base(of.PkgPath())+": Do"), "%v: %s", of, e)
		require.ErrorContains(t, e, "problem", of)
	}
	for _, e := range []error{
		&dlpack.OpError{}, &syclobj.OpError{}, &memmgr.OpError{}, &segment.OpError{}, &usmarray.OpError{},
		&npy.OpError{}, &safetensors.OpError{}, &share.OpError{}, &python.OpError{}, &executor.Error{},
	} {
		check(e, true)
	}
	for _, e := range []error{&syclobj.BuildError{}, &syclobj.KernelError{}, &kernel.OpError{}} {
		check(e, false)
	}
	cuteError := &cute.Error{Kind: kind, Err: problem}
	require.ErrorIs(t, cuteError, kind)
	require.EqualError(t, cuteError, "problem")
	for _, e := range []error{&memmgr.UseError{}, &usmarray.UseError{}, &python.UseError{}} {
		fields := reflect.ValueOf(e).Elem()
		fields.FieldByName("Op").SetString("Do")
		fields.FieldByName("Err").Set(reflect.ValueOf(problem))
		require.ErrorIs(t, e, problem)
		require.Regexp(t, `^(memmgr|usmarray|python): .*Do: problem`, e.Error())
	}
}
