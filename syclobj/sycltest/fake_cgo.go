//go:build linux && cgo

package sycltest

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

// The controls of the fake library; see testdata/fake.
static struct {
	long (*live)(int);
	long (*calls)(const char *);
	void (*fail)(const char *, long);
	void (*hold)(int);
	long (*pending)(void);
	void (*release)(long);
	void (*async)(int, int);
	unsigned long long (*used)(long);
} fake;

static const char *fake_attach(const char *path) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL)
		return dlerror();
	*(void **)&fake.live = dlsym(lib, "fake_live");
	*(void **)&fake.calls = dlsym(lib, "fake_calls");
	*(void **)&fake.fail = dlsym(lib, "fake_fail");
	*(void **)&fake.hold = dlsym(lib, "fake_hold");
	*(void **)&fake.pending = dlsym(lib, "fake_pending");
	*(void **)&fake.release = dlsym(lib, "fake_release");
	*(void **)&fake.async = dlsym(lib, "fake_async");
	*(void **)&fake.used = dlsym(lib, "fake_used");
	return fake.live && fake.calls && fake.fail && fake.hold && fake.pending && fake.release && fake.async && fake.used
		? NULL : "a control is missing";
}
static long go_live(int sort) { return fake.live(sort); }
static long go_calls(const char *f) { return fake.calls(f); }
static void go_fail(const char *f, long n) { fake.fail(f, n); }
static void go_hold(int on) { fake.hold(on); }
static long go_pending(void) { return fake.pending(); }
static void go_release(long i) { fake.release(i); }
static void go_async(int n, int code) { fake.async(n, code); }
static unsigned long long go_used(long i) { return fake.used(i); }
*/
import "C"

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

//go:embed testdata/fake
var source embed.FS

// Build compiles the fake library, once per content, and returns its path. The library is kept in the
// user's cache directory.
func Build() (string, error) { return build() }

var build = sync.OnceValues(func() (string, error) {
	files, sum, err := sources()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "usmbridge-fake-sycl", sum)
	// The name is the real library's, so that a loaded fake is adopted as the
	// real one would be.
	path := filepath.Join(dir, "libDPCTLSyclInterface.so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, compile(dir, path, files)
})

func sources() (map[string][]byte, string, error) {
	files := map[string][]byte{}
	hash := sha256.New()
	err := fs.WalkDir(source, "testdata/fake", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := source.ReadFile(path)
		files[d.Name()] = text
		fmt.Fprintf(hash, "%s %d\n", d.Name(), len(text))
		hash.Write(text)
		return err
	})
	return files, hex.EncodeToString(hash.Sum(nil)[:8]), err
}

// compile builds in a temporary directory and renames, so that concurrent builds never see a partial
// library.
func compile(dir, path string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	compiler := strings.Fields(os.Getenv("CC")) // as the go command takes it, with arguments
	if len(compiler) == 0 {
		compiler = []string{"cc"}
	}
	out := filepath.Join(work, "fake.so")
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-shared", "-fPIC", "-o", out}
	for name, text := range files {
		file := filepath.Join(work, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if filepath.Ext(name) == ".c" {
			args = append(args, file)
		}
	}
	args = append(append(compiler[1:], args...), "-lpthread")
	if text, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler[0], err, text)
	}
	return os.Rename(out, path)
}

// Fake controls the fake machine of this process. Its methods may be used from
// any goroutine.
type Fake struct{}

func attach(path string) (*Fake, error) {
	c := C.CString(path)
	defer C.free(unsafe.Pointer(c))
	if text := C.fake_attach(c); text != nil {
		return nil, errors.New(C.GoString(text))
	}
	return &Fake{}, nil
}

// Live counts the objects of the library that were not deleted.
func (*Fake) Live() Objects {
	var n [11]int64
	for i := range n {
		n[i] = int64(C.go_live(C.int(i)))
	}
	return Objects{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]}
}

// Calls counts the calls of a function of the library by its name.
func (*Fake) Calls(function string) int {
	c := C.CString(function)
	defer C.free(unsafe.Pointer(c))
	return int(C.go_calls(c))
}

// Fail makes the n-th call of the function from now on fail, or all if n is negative; 0 cancels this.
func (*Fake) Fail(function string, n int) {
	c := C.CString(function)
	defer C.free(unsafe.Pointer(c))
	C.go_fail(c, C.long(n))
}

// Hold makes new work wait until Release.
func (*Fake) Hold(on bool) {
	v := C.int(0)
	if on {
		v = 1
	}
	C.go_hold(v)
}

// Pending counts the submitted work that is not complete.
func (*Fake) Pending() int { return int(C.go_pending()) }

// Release lets the pending work from the i-th piece on, in order of submission, start after its dependencies.
func (*Fake) Release(i int) { C.go_release(C.long(i)) }

// ReleaseAll releases all pending work.
func (*Fake) ReleaseAll() { C.go_release(-1) }

// AsyncError makes the n-th submission from now on fail with this code after it
// was accepted.
func (*Fake) AsyncError(n, code int) { C.go_async(C.int(n), C.int(code)) }

// Used counts the bytes of device and shared memory in use on the i-th root
// device.
func (*Fake) Used(i int) uint64 { return uint64(C.go_used(C.long(i))) }
