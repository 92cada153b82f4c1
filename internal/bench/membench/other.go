//go:build !cgo || !linux

// Membench measures the pool of package memmgr against peers that are called
// from C; it needs Linux and cgo.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "membench: needs Linux and cgo")
	os.Exit(1)
}
