package syclobj_test

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

const fakeKernels = "kernel void increment(global int *x) kernel void copy(global const int *x, global int *y)"

// openCompiler opens the real SYCL and returns the default queue, whose device compiles OpenCL C, or skips.
func openCompiler(t *testing.T) *syclobj.Queue {
	q := openReal(t).DefaultQueue()
	if q.Device().Info().Backend != syclobj.BackendOpenCL {
		t.Skipf("%s does not compile OpenCL C", q.Device())
	}
	return q
}

func TestBuildErrorHasTheLog(t *testing.T) {
	q := openCompiler(t)
	p, err := q.BuildOpenCL("kernel void k(global int *x) {\n  x[0] = unheard_of;\n}", "-DA=1")
	require.Nil(t, p)
	e := testenv.As[*syclobj.BuildError](t, err)
	require.ErrorIs(t, err, syclobj.ErrFailed)
	require.Contains(t, e.Log, "unheard_of")
	require.Equal(t, q.Device().FilterString(), e.Device)
	require.ErrorContains(t, err, "use of undeclared identifier")

	_, err = q.BuildOpenCL("kernel void k(void) {}", "-no-such-option")
	require.ErrorAs(t, err, &e)

	// A very long log is cut.
	_, err = q.BuildOpenCL("#define A "+strings.Repeat("#error no\n#warning "+strings.Repeat("w", 100)+"\n", 3000), "-ferror-limit=0")
	require.ErrorAs(t, err, &e)
	require.LessOrEqual(t, len(e.Log), 64<<10+100)
}

func TestKernelParams(t *testing.T) {
	q := openCompiler(t)
	p := testenv.Must(q.BuildOpenCL(`typedef struct { int a, b; } pair;
kernel void all(global const float *a, constant int *b, local uchar *c, int d, float4 e, pair f, double g) {}
kernel void none(void) {}`, ""))(t)
	defer p.Close()
	p.Undescribed(func() { // a failure of OpenCL is not kept
		k := testenv.Opened(p.Kernel("all"))(t)
		require.Equal(t, "a parameter that the driver does not describe", k.Params()[0].String())
	})
	k := testenv.Opened(p.Kernel("all"))(t)
	require.Equal(t, "all", k.Name())
	var declarations []string
	for _, param := range k.Params() {
		declarations = append(declarations, param.String())
	}
	require.Equal(t, []string{"global const float* a", "constant const int* b", "local uchar* c", "int d", "float4 e", "pair f", "double g"}, declarations)
	none := testenv.Opened(p.Kernel("none"))(t)
	require.Empty(t, none.Params())
	testenv.Failed(t, testenv.ErrorOf(p.Kernel("nil")), syclobj.ErrArgument, "its kernels are all, none")
	for _, name := range []string{"", "a\x00b"} {
		require.ErrorIs(t, testenv.ErrorOf(p.Kernel(name)), syclobj.ErrArgument)
	}
	event := testenv.Must(none.Submit(q, []int{1}, nil, nil, nil))(t)
	require.NoError(t, syclobj.TakeEvent(nil, event).Wait(t.Context()))
}

func TestBuildRefusals(t *testing.T) {
	q := openReal(t).DefaultQueue()
	for name, build := range map[string]func() (*syclobj.Program, error){
		"NUL in the text":    func() (*syclobj.Program, error) { return q.BuildOpenCL("a\x00b", "") },
		"NUL in the options": func() (*syclobj.Program, error) { return q.BuildOpenCL("", "a\x00b") },
		"no words":           func() (*syclobj.Program, error) { return q.BuildSPIRV([]byte{3, 2, 35}, "") },
		"no header":          func() (*syclobj.Program, error) { return q.BuildSPIRV(make([]byte, 16), "") },
		"not SPIR-V":         func() (*syclobj.Program, error) { return q.BuildSPIRV(make([]byte, 64), "") },
	} {
		p, err := build()
		require.ErrorIs(t, err, syclobj.ErrArgument, name)
		require.Nil(t, p)
	}
}

// TestKernelsFail: every function that a build, a kernel and a launch use fails; nothing is left behind.
func TestKernelsFail(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		cpu := testenv.Must(rt.Device("opencl:cpu:0"))(t)
		q := defaultQueue(t, cpu)
		m := alloc(t, q, syclobj.USMShared, 64)
		whole := func() error {
			p, err := q.BuildOpenCL(fakeKernels, "")
			if err != nil {
				return err
			}
			defer p.Close()
			k, err := p.Kernel("increment")
			if err != nil {
				return err
			}
			defer k.Close()
			event, err := k.Submit(q, []int{16}, []int{4}, []syclobj.KernelArg{syclobj.PointerArg(m)}, nil)
			if err != nil {
				return err
			}
			return syclobj.TakeEvent(nil, event).Wait(t.Context())
		}
		require.NoError(t, whole())
		require.Equal(t, []int32{1, 1, 1, 1}, unsafe.Slice((*int32)(m), 4))
		before := fake.Live()
		for _, fn := range []string{
			"DPCTLContext_Copy", "DPCTLDevice_Copy", "DPCTLKernelBundle_CreateFromOCLSource", "DPCTLKernelBundle_GetKernel", "DPCTLQueue_SubmitNDRange",
		} {
			fake.Fail(fn, 1)
			require.ErrorIs(t, whole(), syclobj.ErrFailed, fn)
			fake.Fail(fn, 0)
			require.Equal(t, before, fake.Live(), fn)
		}
		fake.Fail("DPCTLDevice_GetMaxWorkItemSizes3d", 1)
		require.NoError(t, whole(), "without limits of the runtime, only the driver checks the range")

		_, err := q.BuildOpenCL("#error", "")
		testenv.As[*syclobj.BuildError](t, err)
		require.ErrorContains(t, err, "the process has no OpenCL loader")
		require.Equal(t, before, fake.Live())
	})
}

// Programs of OpenCL C are for OpenCL, and SPIR-V is for Level Zero as well; CUDA has neither.
func TestProgramsOfBackends(t *testing.T) {
	cuda := sycltest.Platform{Backend: syclobj.BackendCUDA, Name: "Fake CUDA", Devices: []sycltest.Device{{Type: syclobj.TypeGPU, Name: "Fake GPU C"}}}
	onMachine(t, append(sycltest.TwoGPUs[:1:1], cuda), func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		q, other := defaultQueue(t, rt.RootDevices()[0]), defaultQueue(t, rt.RootDevices()[2])
		module := append([]byte{3, 2, 35, 7, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, instruction(fakeKernels)...)
		for _, err := range []error{
			testenv.ErrorOf(q.BuildOpenCL(fakeKernels, "")), testenv.ErrorOf(other.BuildOpenCL(fakeKernels, "")), testenv.ErrorOf(other.BuildSPIRV(module, "")),
		} {
			testenv.Failed(t, err, errors.ErrUnsupported, "SPIR-V an opencl or level_zero device")
		}
		p := testenv.Opened(q.BuildSPIRV(module, ""))(t)
		k := testenv.Opened(p.Kernel("copy"))(t)
		require.Len(t, k.Params(), 2)
		require.Equal(t, "a parameter that the driver does not describe", k.Params()[0].String())
		require.ErrorIs(t, testenv.ErrorOf(p.Kernel("nothing")), syclobj.ErrFailed)

		// A launch on another device is refused, even if the devices are equal.
		gpu := defaultQueue(t, rt.RootDevices()[1])
		testenv.Failed(t, testenv.ErrorOf(k.Submit(gpu, []int{1}, nil, make([]syclobj.KernelArg, 2), nil)), syclobj.ErrArgument, "level_zero:gpu:0")
	})
}

// instruction returns an instruction like OpNop that contains a text, so that the frame is valid.
func instruction(text string) []byte {
	for len(text)%4 != 0 {
		text += " "
	}
	n := len(text)/4 + 1
	return append([]byte{0, 0, byte(n), byte(n >> 8)}, text...)
}

// TestKernelFromManyGoroutines launches a kernel from many goroutines and closes it meanwhile.
func TestKernelFromManyGoroutines(t *testing.T) {
	q := openCompiler(t)
	p := testenv.Must(q.BuildOpenCL("kernel void put(global int *x, int at, int v) { x[at] = v; }", ""))(t)
	k := testenv.Must(p.Kernel("put"))(t)
	require.NoError(t, p.Close())
	m := alloc(t, q, syclobj.USMShared, 4*16*64)
	x := unsafe.Slice((*int32)(m), 16*64)
	testenv.Together(t, 16, func(g int) error {
		for i := range 64 {
			at := int32(64*g + i)
			event, err := k.Submit(q, []int{1}, nil, []syclobj.KernelArg{syclobj.PointerArg(m), syclobj.ScalarArg(at), syclobj.ScalarArg(at + 1)}, nil)
			if err == nil {
				err = syclobj.TakeEvent(q, event).Wait(t.Context())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for i, v := range x {
		require.Equal(t, int32(i+1), v)
	}
	require.NoError(t, k.Close())
	require.NoError(t, k.Close())
	require.ErrorIs(t, testenv.ErrorOf(k.Submit(q, []int{1}, nil, nil, nil)), syclobj.ErrClosed)
}
