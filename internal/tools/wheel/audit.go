package main

import (
	"debug/elf"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// glibc is a version of the C library.
type glibc struct{ major, minor int }

func (g glibc) newer(than glibc) bool {
	return g.major > than.major || g.major == than.major && g.minor > than.minor
}

func (g glibc) String() string { return fmt.Sprintf("%d.%d", g.major, g.minor) }

// manylinux are the versions that installers and auditors have a name for; what needs one
// between them takes the next.
var manylinux = []glibc{{2, 17}, {2, 24}, {2, 28}, {2, 31}, {2, 34}, {2, 35}, {2, 39}}

// allowed are the libraries that every manylinux system has.
var allowed = map[string]bool{
	"libc.so.6": true, "libm.so.6": true, "libpthread.so.0": true, "libdl.so.2": true, "librt.so.1": true,
	"libresolv.so.2": true, "ld-linux-x86-64.so.2": true, "ld-linux-aarch64.so.1": true,
}

// findings are what an audit of the library has found.
type findings struct {
	machine string
	needs   glibc  // newest version that a symbol has
	foreign string // a library that is not everywhere, or ""
}

// platform is the tag of the systems that the library runs on (PEP 600).
func (f findings) platform() string {
	if f.foreign != "" {
		return "linux_" + f.machine
	}
	tag := f.needs
	if i := slices.IndexFunc(manylinux, func(g glibc) bool { return !f.needs.newer(g) }); i >= 0 {
		tag = manylinux[i]
	}
	return fmt.Sprintf("manylinux_%d_%d_%s", tag.major, tag.minor, f.machine)
}

// audit reads what the library needs. It fails for one that no Python could load, and for
// one that is bound to a Python: all of CPython is looked up at run time, so a symbol of
// it would be one outside the stable ABI's promise.
func audit(library string) (findings, error) {
	file, err := elf.Open(library)
	if err != nil {
		return findings{}, err
	}
	defer func() { _ = file.Close() }()
	machine, ok := map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}[file.Machine]
	if !ok {
		return findings{}, fmt.Errorf("no wheel platform is known for %v", file.Machine)
	}
	for _, section := range file.Sections {
		if strings.HasPrefix(section.Name, ".debug_") || strings.HasPrefix(section.Name, ".zdebug_") {
			return findings{}, fmt.Errorf("the library has %s, which names directories of the machine that built it", section.Name)
		}
	}
	f := findings{machine: machine, needs: glibc{2, 2}}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return findings{}, err
	}
	for _, n := range needed {
		if strings.HasPrefix(n, "libpython") {
			return findings{}, fmt.Errorf("the library needs %s: it would load in that Python alone", n)
		}
		if !allowed[n] {
			f.foreign = n
		}
	}
	imported, err := file.ImportedSymbols()
	if err != nil {
		return findings{}, err
	}
	for _, s := range imported {
		if strings.HasPrefix(s.Name, "Py") || strings.HasPrefix(s.Name, "_Py") {
			return findings{}, fmt.Errorf("the library is bound to CPython's symbol %s; look it up at run time", s.Name)
		}
	}
	// The loader looks at these, not at the symbols: a weak one counts too.
	var versions []elf.DynamicVersionNeed
	if file.SectionByType(elf.SHT_GNU_VERNEED) != nil {
		if versions, err = file.DynamicVersionNeeds(); err != nil {
			return findings{}, err
		}
	}
	for _, from := range versions {
		for _, v := range from.Needs {
			if g, ok := glibcVersion(v.Dep); ok && g.newer(f.needs) {
				f.needs = g
			}
		}
	}
	all, err := file.DynamicSymbols()
	if err != nil {
		return findings{}, err
	}
	if !slices.ContainsFunc(all, func(s elf.Symbol) bool { return s.Name == initSymbol && s.Section != elf.SHN_UNDEF }) {
		return findings{}, fmt.Errorf("the library does not export %s, by which Python loads it", initSymbol)
	}
	return f, nil
}

const initSymbol = "PyInit__native"

// glibcVersion reads "GLIBC_2.34".
func glibcVersion(s string) (glibc, bool) {
	rest, ok := strings.CutPrefix(s, "GLIBC_")
	if !ok {
		return glibc{}, false
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return glibc{}, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return glibc{major, minor}, err1 == nil && err2 == nil
}
