package calls

import (
	"context"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/interop/python"
)

// CheckFunction returns an error unless a name has the form "module:name".
func CheckFunction(name string) error {
	module, path, ok := strings.Cut(name, ":")
	if !ok || module == "" || path == "" {
		return fmt.Errorf("%q names no function: wanted \"module:name\": %w", name, python.ValueError)
	}
	return nil
}

// Function returns the function "module:name". It imports the module.
func Function(py *python.Interpreter, name string) (*python.Object, error) {
	if err := CheckFunction(name); err != nil {
		return nil, err
	}
	module, path, _ := strings.Cut(name, ":")
	o, err := py.Import(module)
	for part := range strings.SplitSeq(path, ".") {
		if err != nil {
			return nil, err
		}
		var next *python.Object
		next, err = o.Attr(part)
		o.Release()
		o = next
	}
	return o, err
}

// Warm calls a function without arguments and discards its result. A coroutine or a generator is an error, because
// making one runs nothing of the function.
func Warm(ctx context.Context, py *python.Interpreter, function string) error {
	o, err := Function(py, function)
	if err != nil {
		return err
	}
	defer o.Release()
	result, err := o.CallContext(ctx)
	if err != nil {
		return err
	}
	defer result.Release()
	switch kind, err := result.Type(); {
	case err != nil:
		return err
	case kind == "coroutine" || kind == "generator" || kind == "async_generator":
		return fmt.Errorf("%s: its result is of type %s, so it has not run; name a plain function", function, kind)
	}
	return nil
}

// Text calls a function with a text, and returns the text that it returns.
func Text(ctx context.Context, py *python.Interpreter, function, text string) (string, error) {
	o, err := Function(py, function)
	if err != nil {
		return "", err
	}
	defer o.Release()
	result, err := o.CallContext(ctx, text)
	if err != nil {
		return "", err
	}
	defer result.Release()
	return result.Text()
}
