//go:build linux && cgo

package python_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/interop/python"
)

// The examples have no Output comment, because they need a Python with a shared library.
// TestExamples runs those that need no Python package.

func ExampleStart() {
	py, err := python.Start() // the Python of the active environment
	if err != nil {
		log.Fatal(err) // lists the interpreters examined and the package to install
	}
	defer py.Close()

	out, err := py.Run("y = [x * k for x in xs]", python.Vars{"xs": []int{1, 2, 3}, "k": 0.5}, "y")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["y"])
}

func ExampleObject_Call() {
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	np, err := py.Import("numpy")
	if errors.Is(err, python.ModuleNotFoundError) {
		log.Fatal("pip install numpy")
	} else if err != nil {
		log.Fatal(err)
	}
	defer np.Release()
	a, err := np.Method("zeros", python.Tuple{2, 3}, python.Kwargs{"dtype": "float32"})
	if err != nil {
		var e *python.Error
		if errors.As(err, &e) {
			log.Print(e.Traceback)
		}
		log.Fatal(err)
	}
	defer a.Release()
	fmt.Println(a)
}

func ExampleInterpreter_Func() {
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	half, err := py.Func("half", "half of an even int", func(a python.Args) (any, error) {
		n, err := a.Positional[0].Int()
		if err != nil {
			return nil, err // raised as the same exception
		}
		if n%2 != 0 {
			return nil, fmt.Errorf("%w: %d is odd", python.ValueError, n)
		}
		return n / 2, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer half.Release()
	_, err = py.Run("half(3)", python.Vars{"half": half})
	fmt.Println(errors.Is(err, python.ValueError), err)
}

// Operations without a method of Object are functions of the modules builtins and operator.
func ExampleObject_Method() {
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	builtins, err := py.Import("builtins")
	if err != nil {
		log.Fatal(err)
	}
	defer builtins.Release()
	class, err := builtins.Attr("LookupError")
	if err != nil {
		log.Fatal(err)
	}
	defer class.Release()
	yes, err := builtins.Method("issubclass", class, class)
	if err != nil {
		log.Fatal(err)
	}
	defer yes.Release()
	answer, err := python.As[bool](yes)
	fmt.Println(answer, err)
}

// Code inside With releases the GIL to wait for a goroutine that needs Python.
func ExampleInterpreter_WithoutGIL() {
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	err = py.With(func() error {
		done := make(chan error)
		go func() {
			_, err := py.Run("import json", nil)
			done <- err
		}()
		py.WithoutGIL(func() { err = <-done })
		return err
	})
	fmt.Println(err)
}
