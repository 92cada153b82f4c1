//go:build linux && cgo

// Package testfaults makes calls of the SYCL library fail, in a process with the real library behind
// testdata/faults.c. Only tests import it. Package sycltest has a library without a driver behind it.
package testfaults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
)

const (
	envReal    = "USMBRIDGE_FAULTS_LIBRARY"
	envControl = "USMBRIDGE_FAULTS"
	envTest    = "USMBRIDGE_FAULTS_TEST"
)

// Rounds yields the numbers of the rounds of a test: three, or more until USMBRIDGE_HUNT seconds have passed.
func Rounds() iter.Seq[int] {
	seconds, _ := strconv.Atoi(os.Getenv("USMBRIDGE_HUNT"))
	return func(yield func(int) bool) {
		end := time.Now().Add(time.Duration(seconds) * time.Second)
		for round := 0; (round < 3 || time.Now().Before(end)) && yield(round); round++ {
		}
	}
}

// Unaligned has the variables, for Child, of drivers that do not align memory as requested: one ignores
// alignments of more than 64 bytes, as PoCL does above 128, one refuses them, and CUDA's refuses some.
var Unaligned = map[string][]string{
	"ignored": {"USMBRIDGE_FAULTS_SHIFT=64"},
	"refused": {"USMBRIDGE_FAULTS_SHIFT=64", "USMBRIDGE_FAULTS_ALIGN=64"},
	"pages":   {"USMBRIDGE_FAULTS_SHIFT=512", "USMBRIDGE_FAULTS_ALIGN=512"},
}

// The layout of the control file: struct control of testdata/faults.c.
const (
	rowBytes   = 64
	leftOffset = 48
	fileBytes  = 128 * rowBytes
)

// Faults controls the library of this process.
type Faults struct{ file []byte }

// Fail makes the n-th call of the function from now on fail; 0 cancels this.
func (f *Faults) Fail(t testing.TB, function string, n int) {
	t.Helper()
	at := bytes.Index(f.file, append([]byte(function), 0))
	if at < 0 {
		t.Fatalf("the SYCL library has no function %s", function)
	}
	atomic.StoreInt64((*int64)(unsafe.Pointer(&f.file[at+leftOffset])), int64(n))
}

// Rate makes so many calls in a million fail at random.
func (f *Faults) Rate(perMillion uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&f.file[0])), perMillion)
}

// Failed returns the number of calls that have failed.
func (f *Faults) Failed() uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&f.file[8]))) }

// Child runs the calling test again in a process with the library. In the parent it waits for that process,
// and fails the test if the child failed. In the child it calls f with the controls. environment are further
// variables of the child. Without a SYCL device or a C compiler the test ends as [testenv.Missing] describes.
func Child(t *testing.T, seed uint64, environment []string, f func(*Faults)) {
	t.Helper()
	if os.Getenv(envTest) == t.Name() {
		f(&Faults{mapFile(t, os.Getenv(envControl))})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.count=1", "-test.v", "-test.timeout=4h")
	cmd.Env = append(append(append(os.Environ(), envTest+"="+t.Name()), Environment(t, seed)...), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" (")) {
		t.Fatalf("with failing calls: %v\n%s", err, out)
	}
	t.Log(string(out))
}

// Environment returns the variables of a process with the library. seed selects the calls that fail at random.
func Environment(t testing.TB, seed uint64) []string {
	t.Helper()
	rt, err := syclobj.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if rt.DefaultQueue().IsHost() {
		testenv.Missing(t, fmt.Sprintf("no SYCL device: %v", rt.SYCLError()), testenv.SYCL)
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the library is written for x86-64")
	}
	dir := t.TempDir()
	library, control := filepath.Join(dir, "libusmbfaults.so"), filepath.Join(dir, "control")
	data := make([]byte, fileBytes)
	binary.LittleEndian.PutUint64(data[16:], seed)
	if err := os.WriteFile(control, data, 0o600); err != nil {
		t.Fatal(err)
	}
	compiler := strings.Fields(os.Getenv("CC"))
	if len(compiler) == 0 {
		compiler = []string{"cc"}
	}
	source := filepath.Join(testenv.Root(), "internal", "testenv", "testfaults", "testdata", "faults.c")
	args := append(compiler[1:], "-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-I", filepath.Join(testenv.Root(), "syclobj"), "-o", library, source)
	if out, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler[0], err, out)
	}
	return []string{syclobj.EnvLibrary + "=" + library, envReal + "=" + rt.Library().Path, envControl + "=" + control}
}

func mapFile(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := syscall.Mmap(int(f.Fd()), 0, fileBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
