package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "dist", "`directory` of the wheel")
	flag.StringVar(&o.root, "root", ".", "`directory` of LICENSE, which is included")
	flag.StringVar(&o.zig, "zig", "", "a `python` with the package ziglang: compile C with it, for old systems")
	flag.BoolVar(&o.reproduce, "reproduce", false, "build again from nothing, and fail unless both are the same")
	flag.Parse()
	path, err := build(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
