//go:build linux && amd64 && cgo

package syclobj_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// throwing has the function of libsycl, which throws an exception of C++ for the queue "throw". Only the lowest byte of its
// result counts.
const throwing = `
extern void _ZSt20__throw_length_errorPKc(const char *);
int _ZNK4sycl3_V15queue16ext_oneapi_emptyEv(const char *queue)
{
	if (*queue == 't') _ZSt20__throw_length_errorPKc(queue);
	return *queue == 'e' ? 0x101 : 0x100;
}`

const asking = `
#include <dlfcn.h>
#include <stdio.h>
#include "symbols.h"
#include "usmb_sycl.h"
_Atomic int usmb_symbols_ready = 1;
struct usmb_dpctl usmb_dp;
int main(int argc, char **argv)
{
	void *lib = dlopen(argv[1], RTLD_NOW);
	if (argc != 2 || lib == NULL) return 1;
	usmb_empty_bind(lib);
	for (int i = 0; i < 2; i++)
		printf("%d%d%d ", usmb_sycl_queue_empty("empty"), usmb_sycl_queue_empty("busy"), usmb_sycl_queue_empty("throw"));
	return 0;
}`

// TestQueueEmpty: an exception of SYCL counts as a queue with work, and so do releases that were not tested.
func TestQueueEmpty(t *testing.T) {
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
	require.NoError(t, os.WriteFile(file, []byte(asking), 0o600))
	out, err := exec.Command("cc", "-O2", "-I.", "-o", program, file, "empty.c", "gate.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range map[string]string{"libsycl.so.9": "100 100 ", "libsycl.so.10": "100 100 ", "libsycl.so.8": "000 000 ", "libsycl.so": "000 000 "} {
		lib := compile(t, name, throwing, "-fexceptions", "-lstdc++")
		out, err := exec.Command(program, lib).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Equal(t, want, string(out), name)
	}
}
