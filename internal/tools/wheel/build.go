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

// options are the flags of the command.
type options struct {
	out       string // directory of the wheel
	root      string // of the repository
	zig       string // a Python with ziglang, or "" for Go's own C compiler
	reproduce bool
}

// oldest is the glibc that zig compiles for. A library built by zig must not need a newer one.
var oldest = glibc{2, 28}

// build builds, audits and packs the library, and returns the path of the wheel.
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
		return "", fmt.Errorf("the library needs glibc %v, which is newer than the %v that it was built for", found.needs, oldest)
	}
	if o.zig != "" && found.foreign != "" {
		return "", fmt.Errorf("the library needs %s, which systems of the wheel's platform may lack", found.foreign)
	}
	if o.reproduce {
		if err := checkReproducible(o.zig, o.root, library, dir); err != nil {
			return "", err
		}
	}
	w := wheel{version: usmarray.Version, tag: "cp311-abi3-" + found.platform()}
	if w.license, err = os.ReadFile(filepath.Join(o.root, "LICENSE")); err != nil {
		return "", err
	}
	return w.write(o.out, library)
}

// compile builds the extension from the sources below root. cache is the directory of Go's build cache, or "" for
// the default. The library does not depend on the place and time of the build: it has no paths, no state of
// the checkout, no debug information of C, and no build ID, which depends on the path of the compiler. It
// looks up no host names, so netgo avoids the resolver of C.
func compile(zig, root, library, cache string) error {
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-tags=netgo", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid= -extldflags=-Wl,-s", "-o", library, extensionPackage)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g0")
	if zig != "" {
		arch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		if !ok {
			return fmt.Errorf("no zig target for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
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

// checkReproducible builds a copy of the sources in another directory with an empty cache, and compares the
// two libraries.
func checkReproducible(zig, root, library, dir string) error {
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
		return errors.New("two builds of the same sources differ, so the wheel is not reproducible")
	}
	return nil
}

// copySources copies the tree without build results (bin, dist) and hidden directories.
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
