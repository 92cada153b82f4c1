package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	extensionPackage = "github.com/usmbridge/usmbridge/internal/tools/wheel/extension"
	libraryName      = "usmbridge/_native.abi3.so"
)

// options say what to build.
type options struct {
	out       string // directory of the wheel
	root      string // of the repository
	zig       string // a Python with ziglang, or "" for Go's own C compiler
	reproduce bool
}

// oldest is the glibc that zig compiles for, and then the newest that the wheel may ask for.
var oldest = glibc{2, 28}

// build makes the library, audits it and packs it.
func build(o options) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("the module needs Linux: %w", errors.ErrUnsupported)
	}
	dir, err := os.MkdirTemp("", "usmbridge-wheel-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, filepath.Base(libraryName))
	if err := compile(o.zig, o.root, library, ""); err != nil {
		return "", err
	}
	found, err := audit(library)
	if err != nil {
		return "", err
	}
	if o.zig != "" && found.needs.newer(oldest) {
		return "", fmt.Errorf("the library asks for glibc %v, newer than the %v that it was built for", found.needs, oldest)
	}
	if o.zig != "" && found.foreign != "" {
		return "", fmt.Errorf("the library needs %s, which is not on every system that the wheel is for", found.foreign)
	}
	if o.reproduce {
		if err := sameAgain(o.zig, o.root, library, dir); err != nil {
			return "", err
		}
	}
	w := wheel{version: usmarray.Version, tag: "cp311-abi3-" + found.platform()}
	if w.license, err = os.ReadFile(filepath.Join(o.root, "LICENSE")); err != nil {
		return "", err
	}
	if w.readme, err = os.ReadFile(filepath.Join(o.root, "README.md")); err != nil {
		return "", err
	}
	return w.write(o.out, library)
}

// compile builds the extension from the sources below root, with a cache of its own when
// one is named. Nothing of where and when it was built gets into the library: no paths, no
// state of the checkout, no lines of C for a debugger, and no identity of the build, into
// which Go hashes the compiler's command with its path. Names of hosts are nothing that it
// looks up, so the resolver of C stays out.
func compile(zig, root, library, cache string) error {
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-tags=netgo", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid= -extldflags=-Wl,-s", "-o", library, extensionPackage)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g0")
	if zig != "" {
		arch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		if !ok {
			return fmt.Errorf("zig's name of %s is not known here: %w", runtime.GOARCH, errors.ErrUnsupported)
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("CC=%s -m ziglang cc -target %s-linux-gnu.%v", zig, arch, oldest))
	}
	if cache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+cache)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build -buildmode=c-shared: %w", err)
	}
	return nil
}

// sameAgain builds a copy of the sources, elsewhere and with an empty cache, and compares
// byte by byte. The wheel around the library has no time or order of its own.
func sameAgain(zig, root, library, dir string) error {
	copied := filepath.Join(dir, "copied")
	if err := copySources(copied, root); err != nil {
		return fmt.Errorf("copying the sources: %w", err)
	}
	again := filepath.Join(dir, "again.so")
	if err := compile(zig, copied, again, filepath.Join(dir, "cache")); err != nil {
		return err
	}
	a, err := os.ReadFile(library)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(again)
	if err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return errors.New("two builds of the same sources differ: the wheel cannot be reproduced")
	}
	return nil
}

// copySources copies what go build reads, without what lies in the checkout besides.
func copySources(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "bin" || name == "dist" || name != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o600)
	})
}
