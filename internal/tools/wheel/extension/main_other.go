//go:build !cgo || !linux

// Command extension is the Python extension module usmbridge._native. It needs Linux and cgo.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("extension: the module needs Linux and cgo\n")
	os.Exit(1)
}
