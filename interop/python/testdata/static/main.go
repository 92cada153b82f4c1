// Command static is the program of TestStaticProgram. It prints the error of Start.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/usmbridge/usmbridge/interop/python"
)

func main() {
	_, err := python.Start()
	fmt.Println(err)
	if !errors.Is(err, errors.ErrUnsupported) {
		os.Exit(1)
	}
}
