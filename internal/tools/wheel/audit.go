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

// manylinux lists the glibc versions that platform tags name. A library that needs another version has the
// tag of the next one.
var manylinux = []glibc{{2, 17}, {2, 24}, {2, 28}, {2, 31}, {2, 34}, {2, 35}, {2, 39}}

// allowed lists the libraries of every manylinux system.
var allowed = map[string]bool{
	"libc.so.6": true, "libm.so.6": true, "libpthread.so.0": true, "libdl.so.2": true, "librt.so.1": true,
	"libresolv.so.2": true, "ld-linux-x86-64.so.2": true, "ld-linux-aarch64.so.1": true,
}

// findings is the result of an audit.
type findings struct {
	machine string
	needs   glibc  // the newest version of a symbol
	foreign string // a library that is not in allowed, or ""
}

// platform returns the platform tag of the library (PEP 600).
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

// audit returns the requirements of the library. It is an error if Python cannot load the library, if the library
// has debug information, or if it links to CPython: the module looks up every function of CPython at
// run time, in the stable ABI.
func audit(library string) (findings, error) {
	file, err := elf.Open(library)
	if err != nil {
		return findings{}, err
	}
	defer func() { _ = file.Close() }()
	machine, ok := map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}[file.Machine]
	if !ok {
		return findings{}, fmt.Errorf("no platform tag for %v", file.Machine)
	}
	for _, section := range file.Sections {
		if strings.HasPrefix(section.Name, ".debug_") || strings.HasPrefix(section.Name, ".zdebug_") {
			return findings{}, fmt.Errorf("the library has the section %s, which names directories of the machine that built it", section.Name)
		}
	}
	f := findings{machine: machine, needs: glibc{2, 2}}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return findings{}, err
	}
	for _, n := range needed {
		if strings.HasPrefix(n, "libpython") {
			return findings{}, fmt.Errorf("the library links to %s, so only that Python could load it", n)
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
			return findings{}, fmt.Errorf("the library links to the symbol %s of CPython; look it up at run time", s.Name)
		}
	}
	// The loader checks this section, which includes the versions of weak symbols.
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
		return findings{}, fmt.Errorf("the library does not export %s, which Python calls to load it", initSymbol)
	}
	return f, nil
}

const initSymbol = "PyInit__native"

// glibcVersion parses a symbol version such as "GLIBC_2.34".
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
