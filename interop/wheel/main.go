package main

import (
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	extensionPackage = "github.com/usmbridge/usmbridge/interop/wheel/extension"
	libraryName      = "usmbridge.abi3.so"
)

func main() {
	out := flag.String("out", "dist", "directory of the wheel")
	license := flag.String("license", "LICENSE", "license file to include")
	flag.Parse()
	path, err := build(*out, *license)
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// build makes the library and packs it.
func build(out, license string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("the module needs Linux: %w", errors.ErrUnsupported)
	}
	dir, err := os.MkdirTemp("", "usmbridge-wheel-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, libraryName)
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", library, extensionPackage)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build -buildmode=c-shared: %w", err)
	}
	platform, err := platformTag(library)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(license)
	if err != nil {
		return "", err
	}
	w := wheel{version: usmarray.Version, tag: "cp311-abi3-" + platform, license: text}
	return w.write(out, library)
}

// allowed are the libraries that every manylinux system has.
var allowed = map[string]bool{
	"libc.so.6": true, "libm.so.6": true, "libpthread.so.0": true, "libdl.so.2": true, "librt.so.1": true,
	"libresolv.so.2": true, "ld-linux-x86-64.so.2": true, "ld-linux-aarch64.so.1": true,
}

// platformTag names the systems that the library runs on: manylinux with the
// newest glibc version that one of its symbols asks for (PEP 600).
func platformTag(library string) (string, error) {
	f, err := elf.Open(library)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	machine, ok := map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}[f.Machine]
	if !ok {
		return "", fmt.Errorf("no wheel platform is known for %v", f.Machine)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return "", err
	}
	for _, n := range needed {
		if !allowed[n] {
			return "linux_" + machine, nil
		}
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", err
	}
	major, minor := 2, 17
	for _, s := range symbols {
		if a, b, ok := glibcVersion(s.Version); ok && (a > major || a == major && b > minor) {
			major, minor = a, b
		}
	}
	return fmt.Sprintf("manylinux_%d_%d_%s", major, minor, machine), nil
}

// glibcVersion reads "GLIBC_2.34".
func glibcVersion(s string) (major, minor int, ok bool) {
	rest, ok := strings.CutPrefix(s, "GLIBC_")
	if !ok {
		return 0, 0, false
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}
