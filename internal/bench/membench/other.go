//go:build !cgo || !linux

// Membench compares the pool of package memmgr with other allocators. It needs Linux and cgo.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "membench: needs Linux and cgo")
	os.Exit(1)
}
