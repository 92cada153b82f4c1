package dlpack_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// abiFact is a number that the standard defines: an expression in terms of dlpack.h, the same in terms of
// usmb_dlpack.h, and the number.
type abiFact struct {
	standard, ours string
	want           int64
}

// offset returns the fact about the offset of a struct field.
func offset(standard, ours string, want int64) abiFact {
	return abiFact{"offsetof(" + standard + ")", "offsetof(" + ours + ")", want}
}

func structFacts() []abiFact {
	return []abiFact{
		{"sizeof(DLPackVersion)", "sizeof(usmb_dl_version)", 8},
		{"sizeof(DLDevice)", "sizeof(usmb_dl_device)", 8},
		{"sizeof(DLDataType)", "sizeof(usmb_dl_dtype)", 4},
		{"sizeof(DLTensor)", "sizeof(usmb_dl_tensor)", 48},
		{"sizeof(DLManagedTensor)", "sizeof(usmb_dl_managed)", 64},
		{"sizeof(DLManagedTensorVersioned)", "sizeof(usmb_dl_versioned)", 80},
		{"sizeof(DLPackExchangeAPIHeader)", "sizeof(usmb_dl_exchange_header)", 16},
		{"sizeof(DLPackExchangeAPI)", "sizeof(usmb_dl_exchange_api)", 56},
		offset("DLDataType, code", "usmb_dl_dtype, code", 0),
		offset("DLDataType, bits", "usmb_dl_dtype, bits", 1),
		offset("DLDataType, lanes", "usmb_dl_dtype, lanes", 2),
		offset("DLTensor, data", "usmb_dl_tensor, data", 0),
		offset("DLTensor, device.device_type", "usmb_dl_tensor, device.type", 8),
		offset("DLTensor, device.device_id", "usmb_dl_tensor, device.id", 12),
		offset("DLTensor, ndim", "usmb_dl_tensor, ndim", 16),
		offset("DLTensor, dtype", "usmb_dl_tensor, dtype", 20),
		offset("DLTensor, shape", "usmb_dl_tensor, shape", 24),
		offset("DLTensor, strides", "usmb_dl_tensor, strides", 32),
		offset("DLTensor, byte_offset", "usmb_dl_tensor, byte_offset", 40),
		offset("DLManagedTensor, dl_tensor", "usmb_dl_managed, t", 0),
		offset("DLManagedTensor, manager_ctx", "usmb_dl_managed, ctx", 48),
		offset("DLManagedTensor, deleter", "usmb_dl_managed, deleter", 56),
		offset("DLManagedTensorVersioned, version.major", "usmb_dl_versioned, version.major", 0),
		offset("DLManagedTensorVersioned, version.minor", "usmb_dl_versioned, version.minor", 4),
		offset("DLManagedTensorVersioned, manager_ctx", "usmb_dl_versioned, ctx", 8),
		offset("DLManagedTensorVersioned, deleter", "usmb_dl_versioned, deleter", 16),
		offset("DLManagedTensorVersioned, flags", "usmb_dl_versioned, flags", 24),
		offset("DLManagedTensorVersioned, dl_tensor", "usmb_dl_versioned, t", 32),
		offset("DLPackExchangeAPI, header.version.major", "usmb_dl_exchange_api, header.version.major", 0),
		offset("DLPackExchangeAPI, header.version.minor", "usmb_dl_exchange_api, header.version.minor", 4),
		offset("DLPackExchangeAPI, header.prev_api", "usmb_dl_exchange_api, header.prev_api", 8),
		offset("DLPackExchangeAPI, managed_tensor_allocator", "usmb_dl_exchange_api, managed_tensor_allocator", 16),
		offset("DLPackExchangeAPI, managed_tensor_from_py_object_no_sync", "usmb_dl_exchange_api, managed_tensor_from_py_object_no_sync", 24),
		offset("DLPackExchangeAPI, managed_tensor_to_py_object_no_sync", "usmb_dl_exchange_api, managed_tensor_to_py_object_no_sync", 32),
		offset("DLPackExchangeAPI, dltensor_from_py_object_no_sync", "usmb_dl_exchange_api, dltensor_from_py_object_no_sync", 40),
		offset("DLPackExchangeAPI, current_work_stream", "usmb_dl_exchange_api, current_work_stream", 48),
	}
}

func valueFacts() []abiFact {
	facts := []abiFact{
		{"DLPACK_MAJOR_VERSION", "USMB_DL_MAJOR", int64(dlpack.CurrentVersion.Major)},
		{"DLPACK_MINOR_VERSION", "USMB_DL_MINOR", int64(dlpack.CurrentVersion.Minor)},
		{"DLPACK_FLAG_BITMASK_READ_ONLY", "USMB_DL_FLAG_READ_ONLY", int64(dlpack.ReadOnly)},
		{"DLPACK_FLAG_BITMASK_IS_COPIED", "USMB_DL_FLAG_IS_COPIED", int64(dlpack.IsCopied)},
		{"DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED", "USMB_DL_FLAG_SUBBYTE_PADDED", int64(dlpack.SubBytePadded)},
	}
	devices := map[dlpack.DeviceType]string{
		dlpack.DeviceCPU: "CPU", dlpack.DeviceCUDA: "CUDA", dlpack.DeviceCUDAHost: "CUDA_HOST",
		dlpack.DeviceOpenCL: "OPENCL", dlpack.DeviceVulkan: "VULKAN", dlpack.DeviceMetal: "METAL",
		dlpack.DeviceVPI: "VPI", dlpack.DeviceROCM: "ROCM", dlpack.DeviceROCMHost: "ROCM_HOST",
		dlpack.DeviceExtDev: "EXT_DEV", dlpack.DeviceCUDAManaged: "CUDA_MANAGED", dlpack.DeviceOneAPI: "ONEAPI",
		dlpack.DeviceWebGPU: "WEBGPU", dlpack.DeviceHexagon: "HEXAGON", dlpack.DeviceMAIA: "MAIA", dlpack.DeviceTrn: "TRN",
	}
	for t, ours := range devices {
		facts = append(facts, abiFact{t.String(), "USMB_DL_" + ours, int64(t)})
	}
	for c := dlpack.CodeInt; c <= dlpack.CodeFloat4E2M1FN; c++ {
		ours := strings.ToUpper(strings.TrimPrefix(c.String(), "kDL"))
		if c == dlpack.CodeOpaqueHandle {
			ours = "OPAQUE_HANDLE"
		}
		facts = append(facts, abiFact{c.String(), "USMB_DL_" + ours, int64(c)})
	}
	return facts
}

// standardHeader returns the path of dlpack.h in the active environment. Without it the test ends.
func standardHeader(t *testing.T) string {
	t.Helper()
	for _, e := range testenv.Environments() {
		pattern := filepath.Join(e, "lib", "python3*", "site-packages", "tvm_ffi", "include", "dlpack", "dlpack.h")
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return testenv.Must(filepath.Abs(found[0]))(t)
		}
	}
	testenv.Missing(t, "no dlpack.h: neither VIRTUAL_ENV nor .venv has the wheel apache-tvm-ffi", testenv.Peers)
	return ""
}

// evaluate compiles a C program that prints expressions under a header.
func evaluate(t *testing.T, header string, expressions []string) []int64 {
	t.Helper()
	cc := strings.Fields(os.Getenv("CC")) // as the go command takes it, with arguments
	if len(cc) == 0 {
		cc = []string{"cc"}
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		t.Skipf("no C compiler (%s) to read the header with", cc[0])
	}
	var source bytes.Buffer
	fmt.Fprintf(&source, "#include <stddef.h>\n#include <stdio.h>\n#include %q\nint main(void)\n{\n", header)
	for _, e := range expressions {
		fmt.Fprintf(&source, "\tprintf(\"%%lld\\n\", (long long)(%s));\n", e)
	}
	source.WriteString("\treturn 0;\n}\n")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "facts.c"), filepath.Join(dir, "facts")
	require.NoError(t, os.WriteFile(file, source.Bytes(), 0o600))
	out, err := exec.Command(cc[0], append(cc[1:], "-o", program, file)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out = testenv.Must(exec.Command(program).Output())(t)
	var values []int64
	for _, line := range strings.Fields(string(out)) {
		values = append(values, testenv.Must(strconv.ParseInt(line, 10, 64))(t))
	}
	require.Len(t, values, len(expressions))
	return values
}

func compareFacts(t *testing.T, header string, expression func(abiFact) string) {
	t.Helper()
	facts := append(structFacts(), valueFacts()...)
	expressions := make([]string, len(facts))
	for i, f := range facts {
		expressions[i] = expression(f)
	}
	for i, got := range evaluate(t, header, expressions) {
		require.Equal(t, facts[i].want, got, expressions[i])
	}
}

// TestStandardHeader compares the constants of this package with dlpack.h.
func TestStandardHeader(t *testing.T) {
	header := standardHeader(t)
	compareFacts(t, header, func(f abiFact) string { return f.standard })
}

// TestOwnHeader compares the constants of this package with usmb_dlpack.h.
func TestOwnHeader(t *testing.T) {
	header := testenv.Must(filepath.Abs("usmb_dlpack.h"))(t)
	compareFacts(t, header, func(f abiFact) string { return f.ours })
}

// TestMirroredStructs compares the layout of structs that Go mirrors with C's.
func TestMirroredStructs(t *testing.T) {
	header := testenv.Must(filepath.Abs("usmb_dl_internal.h"))(t)
	var expressions []string
	var want []int64
	for _, f := range dlpack.MirrorFacts() {
		expressions = append(expressions, f.Expression)
		want = append(want, f.Value)
	}
	for i, got := range evaluate(t, header, expressions) {
		require.Equal(t, want[i], got, expressions[i])
	}
}

// TestNoValueMissing: every enumerator and flag of dlpack.h is in the list of facts.
func TestNoValueMissing(t *testing.T) {
	text := testenv.Must(os.ReadFile(standardHeader(t)))(t)
	known := map[string]bool{}
	for _, f := range valueFacts() {
		known[f.standard] = true
	}
	count := 0
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) >= 3 && strings.HasPrefix(fields[0], "kDL") && fields[1] == "=" {
			require.True(t, known[fields[0]], "%s is in the header and not here", fields[0])
			count++
		}
		if len(fields) >= 3 && fields[0] == "#define" && strings.HasPrefix(fields[1], "DLPACK_FLAG_") {
			require.True(t, known[fields[1]], "%s is in the header and not here", fields[1])
			count++
		}
	}
	require.Greater(t, count, 35)
}
