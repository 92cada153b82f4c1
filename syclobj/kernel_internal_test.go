package syclobj

import (
	"encoding/binary"
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

// FuzzLog checks that any output of a compiler becomes valid text of bounded length.
func FuzzLog(f *testing.F) {
	f.Add([]byte("1:2: error: no\n"), 15)
	f.Add([]byte("cut he\xe2\x82"), 1<<20)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, log []byte, total int) {
		s := cutLog(log, total)
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Fatalf("%q is not valid text", s)
		}
		if len(s) > 3*len(log)+64 {
			t.Fatalf("%d bytes became %d", len(log), len(s))
		}
	})
}

// FuzzSPIRVFrame checks that checkSPIRV never reads beyond a module, and that the last instruction of an accepted
// module ends at its end.
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
			t.Fatalf("a module of %d bytes was accepted", len(module))
		}
		// A module that is cut within its last instruction is refused.
		if err == nil && len(module) > 20 && checkSPIRV(module[:len(module)-2]) == nil {
			t.Fatal("a module that ends within a word was accepted")
		}
		if err == nil {
			for name, params := range spirvKernels(module) {
				if len(params) > maxKernelArgs {
					t.Fatalf("%q has %d parameters", name, len(params))
				}
				readFacts(params)
			}
		}
	})
}

// FuzzTypeName checks that any name of a type is parsed without a panic.
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

// TestCloseDoesNotWaitForTheCompiler checks that while one goroutine reads a program's parameters, which runs the
// compiler, other goroutines can close its kernels.
func TestCloseDoesNotWaitForTheCompiler(t *testing.T) {
	m := &made{}
	m.parts.Store(2)
	running, finish := make(chan struct{}), make(chan struct{})
	go func() { // the compiler runs
		m.describing.Lock()
		defer m.describing.Unlock()
		close(running)
		<-finish
	}()
	<-running
	defer close(finish)
	m.drop()
	m.share()
	require.EqualValues(t, 2, m.parts.Load())
}

// TestSPIRVParameters reads the parameters that a module declares, in both byte orders.
func TestSPIRVParameters(t *testing.T) {
	instructions := [][]uint32{
		{opEntryPoint, 6, 20, 0x64636261, 0, 99}, {opEntryPoint, 6, 20, 0x00000062}, {opEntryPoint, 5, 21, 0x00000063},
		{opName, 31, 0x00000078},
		{opTypeInt, 1, 32, 0}, {opTypeFloat, 2, 64}, {opTypeFloat, 3, 16, 1}, {opTypeVector, 4, 1, 4}, {opTypeVector, 5, 1, 7},
		{opTypePointer, 6, 5, 1}, {opTypePointer, 7, 4, 1}, {opTypePointer, 8, 0, 1}, {opTypePointer, 9, 7, 1}, {opTypeSampler, 10},
		{opTypeUntypedPointer, 11, 5}, {opTypeImage, 12, 1, 1},
		{opTypeFunction, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 77}, {opTypeFunction, 16, 0, 1},
		{opFunction, 0, 20, 0, 15}, {opFunctionParameter, 1, 30}, {opFunctionParameter, 2, 31},
		{opFunction, 0, 21, 0, 16}, {opFunctionParameter, 1, 31}, {opFunctionParameter}, {opFunction}, {opTypeVector}, {opName},
	}
	want := []KernelParam{
		{Address: "private", Type: "int"}, {Address: "private", Type: "double", Name: "x"}, {}, {Address: "private", Type: "int4"}, {},
		{Address: "global", Type: "void*"}, {Address: "local", Type: "void*"}, {Address: "constant", Type: "void*", Const: true},
		{Address: "private"}, {Address: "private", Type: "sampler_t"}, {Address: "global", Type: "void*"}, {Address: "global", Type: "image2d_t"}, {},
	}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var module []byte
		for _, w := range []uint32{spirvMagic, 0x00010000, 0, 100, 0} {
			module = order.AppendUint32(module, w)
		}
		for _, i := range instructions {
			module = order.AppendUint32(module, uint32(len(i))<<16|i[0])
			for _, w := range i[1:] {
				module = order.AppendUint32(module, w)
			}
		}
		require.NoError(t, checkSPIRV(module))
		kernels := spirvKernels(module)
		require.Equal(t, map[string][]KernelParam{"abcd": want, "b": want}, kernels)
	}
	driver := map[string][]KernelParam{"a": {{}, {Address: "private", Type: "uint", Name: "n"}}, "c": {{}}}
	module := map[string][]KernelParam{"a": want[5:7], "b": want[:1], "c": want[:2]}
	require.Equal(t, map[string][]KernelParam{
		"a": {want[5], {Address: "private", Type: "uint", Name: "n"}}, "b": want[:1], "c": {{}},
	}, mergeParams(driver, module))
	require.Equal(t, map[string][]KernelParam{"b": want[:1]}, mergeParams(nil, map[string][]KernelParam{"b": want[:1]}))
}
