package kernel_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// assembler writes SPIR-V (specification 1.0): an instruction is a word with its length and number, then
// its operands.
type assembler struct{ words []uint32 }

func (a *assembler) op(number uint32, operands ...uint32) {
	a.words = append(a.words, uint32(len(operands)+1)<<16|number)
	a.words = append(a.words, operands...)
}

// text returns a string as operands: with a NUL, padded to whole words.
func text(s string) []uint32 {
	b := append([]byte(s), make([]byte, 4-len(s)%4)...)
	var words []uint32
	for i := 0; i < len(b); i += 4 {
		words = append(words, binary.LittleEndian.Uint32(b[i:]))
	}
	return words
}

// module returns the words with a header for that many ids.
func (a *assembler) module(ids uint32) []byte {
	var b []byte
	for _, w := range append([]uint32{0x07230203, 0x00010000, 0, ids, 0}, a.words...) {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func emptyModule() []byte { return new(assembler).module(1) }

// addModule is: kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
func addModule() []byte {
	const (
		void = iota + 1
		i32
		i64
		vector
		input
		pointer
		function
		global
		add
		x
		n
		label
		loaded
		at
		element
		old
		sum
		ids
	)
	a := &assembler{}
	for _, capability := range []uint32{4, 5, 6, 11} { // Addresses, Linkage, Kernel, Int64
		a.op(17, capability)
	}
	a.op(14, 2, 2)                                                        // OpMemoryModel Physical64 OpenCL
	a.op(15, append(append([]uint32{6, add}, text("add")...), global)...) // OpEntryPoint Kernel
	a.op(71, global, 11, 28)                                              // OpDecorate BuiltIn GlobalInvocationId
	a.op(71, global, 22)                                                  // Constant
	a.op(19, void)
	a.op(21, i32, 32, 0)
	a.op(21, i64, 64, 0)
	a.op(23, vector, i64, 3)
	a.op(32, input, 1, vector) // OpTypePointer Input
	a.op(32, pointer, 5, i32)  // CrossWorkgroup
	a.op(33, function, void, pointer, i32)
	a.op(59, input, global, 1) // OpVariable
	a.op(54, void, add, 0, function)
	a.op(55, pointer, x)
	a.op(55, i32, n)
	a.op(248, label)
	a.op(61, vector, loaded, global)
	a.op(81, i64, at, loaded, 0)      // OpCompositeExtract
	a.op(70, pointer, element, x, at) // OpInBoundsPtrAccessChain
	a.op(61, i32, old, element, 2, 4) // OpLoad Aligned 4
	a.op(128, i32, sum, old, n)
	a.op(62, element, sum, 2, 4)
	a.op(253)
	a.op(56)
	return a.module(ids)
}

func TestSPIRV(t *testing.T) {
	_, q := testsycl.Need(t)
	p := testenv.Opened(q.BuildSPIRV(addModule(), ""))(t)
	k := take(t, p, "add")
	require.Len(t, k.Params(), 2)
	x := testenv.Held(usmarray.Arange[int32](resource(t, q, syclobj.USMDevice), 0, 1, 8))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(int32(5))))
	require.Equal(t, "[ 5  6  7  8  9 10 11 12]", x.String())

	err := kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(float64(5)))
	require.ErrorIs(t, err, syclobj.ErrArgument, "the module says what it takes, where the driver does not")
	require.ErrorContains(t, err, "a value of 4 bytes")
	require.ErrorIs(t, kernel.Launch(q, k, kernel.Over(8), kernel.Scalar(int64(1)), kernel.Scalar(int32(5))), syclobj.ErrArgument)
	require.ErrorIs(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.ReadWrite(x)), syclobj.ErrArgument)
	require.Equal(t, []string{"global", "private"}, []string{k.Params()[0].Address, k.Params()[1].Address})
	require.ErrorContains(t, testenv.ErrorOf(p.Kernel("sub")), "no kernel sub; its kernels are add")
	require.ErrorIs(t, testenv.ErrorOf(q.BuildSPIRV(addModule()[:92], "")), syclobj.ErrArgument)
}

// TestSPIRVOfACompiler uses a module of dpctl's own tests, if its package contains them.
func TestSPIRVOfACompiler(t *testing.T) {
	_, q := testsycl.Need(t)
	found := testenv.Must(filepath.Glob(filepath.Join(os.Getenv("VIRTUAL_ENV"), "lib", "python3*", "site-packages", "dpctl", "tests", "input_files", "multi_kernel.spv")))(t)
	if len(found) == 0 {
		testenv.Missing(t, "dpctl has no multi_kernel.spv", testenv.Peers)
	}
	module := testenv.Must(os.ReadFile(found[0]))(t)
	p := testenv.Opened(q.BuildSPIRV(module, ""))(t)
	k := take(t, p, "add") // kernel void add(global int *a, global int *b, global int *c)
	r := resource(t, q, syclobj.USMShared)
	a, b, c := testenv.Held(usmarray.Arange[int32](r, 0, 1, 16))(t), testenv.Held(usmarray.Arange[int32](r, 0, 10, 16))(t), testenv.Held(usmarray.Zeros(r, usmarray.Int32, []int{16}))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(16), kernel.ReadWrite(a), kernel.ReadWrite(b), kernel.ReadWrite(c)))
	for i, v := range testenv.Must(usmarray.ToSlice[int32](c))(t) {
		require.Equal(t, int32(11*i), v)
	}
}
