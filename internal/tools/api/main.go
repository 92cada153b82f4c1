// Command api prints the public surface of the module: a line for every exported
// function, method and type of its importable packages, sorted, and a count of
// each package. The test compares the list with surface.txt, so that the surface
// changes only on purpose:
//
//	go run ./internal/tools/api            > internal/tools/api/surface.txt
//	go run ./internal/tools/api -counts
//
// Left out are internal packages, commands, and packages that help tests (named
// …test). Constants and variables are left out too: they are numbers of an ABI and
// errors, which the documentation of a package lists. The list is that of the
// current system and build; Linux on amd64 with cgo has all declarations.
package main

import (
	"flag"
	"fmt"
	"os"
	"sort"
)

func main() {
	counts := flag.Bool("counts", false, "print counts of packages instead of the names")
	dir := flag.String("C", ".", "a directory of the module")
	flag.Parse()
	s, err := read(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
	if !*counts {
		fmt.Print(s.text())
		return
	}
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	sort.Strings(names)
	total, addresses := 0, 0
	for _, name := range names {
		n, a := len(s[name]), s.addresses(name)
		fmt.Printf("%5d %4d  %s\n", n, a, name)
		total, addresses = total+n, addresses+a
	}
	fmt.Printf("%5d %4d  functions, methods and types; those of them with uintptr or unsafe.Pointer\n", total, addresses)
}
