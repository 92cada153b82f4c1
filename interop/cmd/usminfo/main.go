// Command usminfo shows what usmbridge finds on this machine: the SYCL library
// with its version and path, the Python that would be embedded, platforms and
// devices with filter string, DLPack device id and USM kinds; and, where
// something is missing, what it is and how to get it.
//
//	usminfo [--json]
//
// The exit status is 0 also when there is the host backend only: that is an
// answer, not an error.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
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
	found, err := gather()
	if err == nil {
		if *asJSON {
			e := json.NewEncoder(os.Stdout)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			err = e.Encode(found)
		} else {
			err = found.print(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "usminfo:", err)
		os.Exit(1)
	}
}
