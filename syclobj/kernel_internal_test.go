package syclobj

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestOpenCLTypes(t *testing.T) {
	for name, want := range map[string]struct {
		bytes int
		float bool
	}{
		"char": {1, false}, "uchar": {1, false}, "short": {2, false}, "half": {2, true}, "int": {4, false}, "unsigned int": {4, false},
		"float": {4, true}, "long": {8, false}, "double": {8, true}, "float2": {8, true}, "float3": {16, true}, "char16": {16, false},
		"double16": {128, true}, "float5": {}, "pair": {}, "": {}, "unsigned int4": {}, "4": {}, "float04": {}, "int99999999999999999999": {},
	} {
		p := KernelParam{Address: "private", Type: name}
		_, float, _, known := openCLType(name)
		require.Equal(t, want.bytes, p.valueBytes(), name)
		require.Equal(t, want.float, float, name)
		require.Equal(t, want.bytes != 0, known, name)
	}
	bits, float, lanes, known := KernelParam{Address: "global", Type: "float4*"}.Element()
	require.Equal(t, []any{32, true, 4, true}, []any{bits, float, lanes, known})
	_, _, _, known = KernelParam{Address: "global", Type: "void*"}.Element()
	require.False(t, known)
	image := KernelParam{Address: "global", Type: "image2d_t", Name: "i"}
	require.ErrorContains(t, image.takes(&KernelArg{kind: argPointer}), "image2d_t i")
}

func TestOpaqueTypes(t *testing.T) {
	for _, name := range []string{
		"image1d_t", "image1d_buffer_t", "image2d_array_depth_t", "image2d_msaa_t", "image3d_t", "sampler_t", "queue_t", "event_t", "pipe int",
	} {
		require.True(t, (&KernelParam{Address: "global", Type: name}).opaque(), name)
	}
	// A program's own types, and pointers.
	for _, name := range []string{
		"image_params", "image_params*", "imageInfo", "image2d_size", "pipeline", "pipes", "event_table", "queue_time", "sampler", "queue_t*", "float*",
	} {
		p := KernelParam{Address: "global", Type: name}
		require.False(t, p.opaque(), name)
		require.NoError(t, p.takes(&KernelArg{kind: argPointer}), name)
	}
}

func TestCutLog(t *testing.T) {
	require.Equal(t, "a\nb", cutLog([]byte("a\nb"), 3))
	require.Equal(t, "a\n(cut: 900 bytes in all)", cutLog([]byte("a\nbc"), 900))
	require.Equal(t, "abc\n(cut: 900 bytes in all)", cutLog([]byte("abc"), 900))
	require.Equal(t, "a\uFFFDb", cutLog([]byte("a\xff\x00b"), 4))
}

// FuzzLog: whatever a compiler says becomes text of bounded length.
func FuzzLog(f *testing.F) {
	f.Add([]byte("1:2: error: no\n"), 15)
	f.Add([]byte("cut he\xe2\x82"), 1<<20)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, log []byte, total int) {
		s := cutLog(log, total)
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Fatalf("%q is no text", s)
		}
		if len(s) > 3*len(log)+64 {
			t.Fatalf("%d bytes became %d", len(log), len(s))
		}
	})
}

// FuzzSPIRVFrame: no module makes the check read beyond it, and what passes has instructions
// that end where the module does.
func FuzzSPIRVFrame(f *testing.F) {
	whole := []byte{3, 2, 35, 7, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 17, 0, 2, 0, 4, 0, 0, 0}
	f.Add(whole)
	f.Add(whole[:24])
	f.Add([]byte{7, 35, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 17, 0, 0, 0, 4})
	f.Add([]byte("no module at all, but long enough for one"))
	f.Fuzz(func(t *testing.T, module []byte) {
		before := string(module)
		err := checkSPIRV(module)
		if string(module) != before {
			t.Fatal("the check changed the module")
		}
		if err == nil && (len(module)%4 != 0 || len(module) < 20) {
			t.Fatalf("%d bytes passed", len(module))
		}
		// Cut within its last instruction, no module passes.
		if err == nil && len(module) > 20 && checkSPIRV(module[:len(module)-2]) == nil {
			t.Fatal("a part of a word passed")
		}
	})
}

// FuzzTypeName: any name that a driver gives a type is read.
func FuzzTypeName(f *testing.F) {
	for _, name := range []string{"float4*", "unsigned long", "struct pair", "int 3", "0", "half16"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		bits, _, lanes, known := KernelParam{Type: name}.Element()
		if known && (bits < 8 || bits > 64 || lanes < 1 || lanes > 16) {
			t.Fatalf("%q: %d bits, %d lanes", name, bits, lanes)
		}
		p := KernelParam{Address: "private", Type: name}
		if n := p.valueBytes(); n < 0 || n > 128 {
			t.Fatalf("%q: %d bytes", name, n)
		}
	})
}

// TestCloseDoesNotWaitForTheCompiler: while one goroutine asks for a program's parameters,
// which takes a run of the compiler, others close its kernels.
func TestCloseDoesNotWaitForTheCompiler(t *testing.T) {
	m := &made{}
	m.parts.Store(2)
	m.asking.Lock() // the compiler runs
	defer m.asking.Unlock()
	m.drop()
	m.share()
	require.EqualValues(t, 2, m.parts.Load())
}
