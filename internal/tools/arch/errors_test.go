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

// TestErrorsShareAShape checks the shape of errors that CONTRIBUTING.md describes: the operation in Op, the kind in
// Kind, the problem in Err, a text that begins with the package and has operation and problem, and an Unwrap through which
// errors.Is and errors.As find kind and problem. Nested modules check their own types. python.Error is an exception.
func TestErrorsShareAShape(t *testing.T) {
	kind, problem := errors.New("kind"), errors.New("problem")
	for _, test := range []struct {
		err    error
		fields string // those that the type has
	}{
		{&dlpack.OpError{}, "Op Kind Err"}, {&syclobj.OpError{}, "Op Kind Err"}, {&memmgr.OpError{}, "Op Kind Err"},
		{&segment.OpError{}, "Op Kind Err"}, {&usmarray.OpError{}, "Op Kind Err"}, {&npy.OpError{}, "Op Kind Err"},
		{&safetensors.OpError{}, "Op Kind Err"}, {&share.OpError{}, "Op Kind Err"}, {&python.OpError{}, "Op Kind Err"},
		{&executor.Error{}, "Op Kind Err"},
		{&cute.Error{}, "Kind Err"}, // its texts are those of CuTe DSL
		// Err wraps an error of package syclobj or usmarray.
		{&syclobj.BuildError{}, "Op Err"}, {&syclobj.KernelError{}, "Op Err"}, {&kernel.OpError{}, "Op Err"},
		{&memmgr.UseError{}, "Op Err"}, {&usmarray.UseError{}, "Op Err"}, {&python.UseError{}, "Op Err"},
	} {
		e := reflect.ValueOf(test.err).Elem()
		name := e.Type().String()
		text := "problem"
		for field := range strings.FieldsSeq(test.fields) {
			value := map[string]any{"Op": "Do", "Kind": kind, "Err": problem}[field]
			require.True(t, e.FieldByName(field).IsValid(), "%s has no field %s", name, field)
			e.FieldByName(field).Set(reflect.ValueOf(value))
			if field == "Op" {
				text = "^" + path.Base(e.Type().PkgPath()) + ": .*Do: .*problem"
			} else {
				require.ErrorIs(t, test.err, value.(error), name)
			}
		}
		require.Regexp(t, text, test.err.Error(), name)
	}
}
