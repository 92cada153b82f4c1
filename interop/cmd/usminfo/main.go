// Command usminfo prints the libraries and devices that usmbridge finds on this machine: the SYCL library
// with its version and path, the Python that would be embedded, and platforms and devices with filter
// string, DLPack device id and USM kinds. For each missing part it prints the reason and a remedy.
//
//	usminfo [--json]
//
// The exit status is 0 even if only the host backend exists, because that is not an error.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/interop/internal/usminfo"
	"github.com/usmbridge/usmbridge/syclobj"
)

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: usminfo [--json]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "usminfo:", err)
		os.Exit(1)
	}
}

func run(asJSON bool) error {
	var rt *syclobj.Runtime
	err := usminfo.Write(os.Stdout, asJSON, func() (_ *syclobj.Runtime, err error) {
		rt, err = syclobj.Open()
		return rt, err
	}, nil)
	if rt != nil {
		err = multierr.Append(err, rt.Close())
	}
	return err
}
