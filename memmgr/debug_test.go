package memmgr

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// Child runs the calling test again in a child process, with further environment variables, and returns its output.
// In the child it returns true.
func Child(t *testing.T, environment ...string) (out string, child bool) {
	t.Helper()
	const env = "USMBRIDGE_TEST_CHILD"
	if os.Getenv(env) != "" {
		return "", true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), env+"=1"), environment...)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "--- PASS: "+t.Name(), "the child ran to its end")
	return string(text), false
}

// debugged runs the body of the calling test in a child process with these words in its
// environment, and returns its output.
func debugged(t *testing.T, words string, body func()) string {
	t.Helper()
	out, child := Child(t, DebugEnv+"="+words)
	if child {
		body()
		fmt.Println("--- PASS: " + t.Name())
		os.Exit(0) // Main would report the memory that the panics leave
	}
	return out
}

//go:noinline
func releaseHere(b Buffer) { b.Release() }

// With "stacks" the panic of a use after release names both places, and a second release is
// reported.
func TestDebugStacks(t *testing.T) {
	out := debugged(t, "stacks", func() {
		p := NewPool(Host())
		b := testenv.Must(New(p, Request{Size: 100}))(t)
		releaseHere(b)
		func() {
			defer func() {
				err, ok := recover().(*UseError)
				require.True(t, ok)
				require.ErrorIs(t, err, ErrReleased)
				require.Contains(t, err.Allocated, "TestDebugStacks")
				require.Contains(t, err.Released, "releaseHere")
				require.Contains(t, err.Error(), "last reference was released at")
			}()
			b.Data()
		}()
		b.Release()
		require.EqualValues(t, 1, diag.Findings.Load())
		Buffer{}.Release()
		require.EqualValues(t, 1, diag.Findings.Load(), "the zero Buffer may be released")
	})
	require.Contains(t, out, "released again")
	require.Contains(t, out, "releaseHere")
}

// With "poison" memory is filled, and a write to freed memory is detected when the block is
// allocated again, for all sizes.
func TestDebugPoison(t *testing.T) {
	debugged(t, "poison,stacks", func() {
		runtime.GOMAXPROCS(1) // otherwise another processor's shard may serve the next request with another block
		p := NewPool(Host())
		for _, size := range []uintptr{1, 1000, 1 << 20, 3 << 20} {
			b := testenv.Must(New(p, Request{Size: size}))(t)
			mem := testenv.Must(b.Bytes())(t)
			require.Equal(t, bytes.Repeat([]byte{poisonNew}, len(mem)), mem)
			releaseHere(b)
			b, err := New(p, Request{Size: size}) // untouched meanwhile
			require.NoError(t, err)
			mem = testenv.Must(b.Bytes())(t)
			require.Equal(t, bytes.Repeat([]byte{poisonNew}, len(mem)), mem)
			at := b.Address()
			releaseHere(b)
			if size == 3<<20 {
				continue // merges with its neighbours, and nothing is kept of it
			}
			require.EqualValues(t, poisonFreed, mem[len(mem)/2])
			mem[len(mem)/2] = 1
			func() {
				defer func() {
					err, ok := recover().(*UseError)
					require.True(t, ok, "size %d", size)
					require.ErrorContains(t, err, fmt.Sprintf("bytes at %#x was written: byte %d is 0x01", at, len(mem)/2))
					require.Contains(t, err.Error(), "releaseHere")
				}()
				_, err := New(p, Request{Size: size})
				require.Failf(t, "the write was not found", "size %d: %v", size, err)
			}()
		}
	})
}

// The memory of tenants is checked like that of the pool, and stays charged.
func TestDebugPoisonOfTenants(t *testing.T) {
	debugged(t, "poison", func() {
		runtime.GOMAXPROCS(1) // otherwise another processor's shard may serve the next request with another block
		for _, size := range []uintptr{1000, 1 << 20} {
			tenant := testenv.Must(NewPool(Host()).NewTenant("t", TenantOptions{}))(t)
			b := testenv.Must(New(tenant, Request{Size: size}))(t)
			mem := testenv.Must(b.Bytes())(t)
			b.Release()
			b, err := New(tenant, Request{Size: size}) // untouched meanwhile
			require.NoError(t, err)
			require.NotZero(t, tenant.Stats().ActiveBytes.Current)
			b.Release()
			require.Zero(t, tenant.Stats().ActiveBytes.Current)
			mem[len(mem)/2] = 1
			func() {
				defer func() {
					err, ok := recover().(*UseError)
					require.True(t, ok, "size %d", size)
					require.ErrorContains(t, err, fmt.Sprintf("byte %d is 0x01", len(mem)/2))
				}()
				_, err := New(tenant, Request{Size: size})
				require.Failf(t, "the write was not found", "size %d: %v", size, err)
			}()
		}
	})
}

func TestDebugUnknownWord(t *testing.T) {
	out := debugged(t, "venom", func() { require.Equal(t, diag.Checks{}, debug) })
	require.Contains(t, out, `USMBRIDGE_DEBUG: unknown check "venom"; use stacks, poison or leaks`)
}

// Failures in the background are passed to the logger.
func TestSetLogger(t *testing.T) {
	var text bytes.Buffer
	SetLogger(slog.New(slog.NewTextHandler(&text, nil)))
	defer SetLogger(nil)
	before := diag.Failures.Load()
	backgroundFailed("Pool.Release", errors.New("the device is gone"))
	diag.Found("something was forgotten", "main.go:1")
	require.Contains(t, text.String(), `level=ERROR msg="usmbridge: work in the background failed" op=Pool.Release error="the device is gone"`)
	require.Contains(t, text.String(), `level=WARN msg="usmbridge: something was forgotten" allocated=main.go:1`)
	require.Equal(t, before+1, diag.Failures.Load())
}
