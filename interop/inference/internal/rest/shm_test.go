//go:build cgo && linux

package rest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestSharedMemory checks that requests read inputs from and write outputs to a client's shared
// memory, and that the response names the region.
func TestSharedMemory(t *testing.T) {
	v := serve(t, setup{})
	f := testenv.Must(os.CreateTemp("/dev/shm", "usmbridge-rest-"))(t)
	defer func() { _, _ = os.Remove(f.Name()), f.Close() }()
	require.NoError(t, testenv.ErrorOf(f.Write(append(floats(1, 2, 3, 4), make([]byte, 16)...))))
	key := filepath.Base(f.Name())
	ok := func(method, path, body string) []byte {
		r := v.do(method, path, []byte(body))
		require.Equal(t, 200, r.status, "%s", r.body)
		return r.body
	}
	const at = "/v2/systemsharedmemory"
	ok("POST", at+"/region/in%2F%C3%A9/register", `{"key":"/`+key+`","offset":0,"byte_size":16,"more":[]}`)
	ok("POST", at+"/region/out/register", `{"key":"`+key+`","offset":16,"byte_size":16}`)
	want := `{"name":"in/é","key":"/` + key + `","offset":0,"byte_size":16}`
	require.JSONEq(t, "["+want+`,{"name":"out","key":"`+key+`","offset":16,"byte_size":16}]`, string(ok("GET", at+"/status", "")))
	require.JSONEq(t, "["+want+"]", string(ok("GET", at+"/region/in%2F%C3%A9/status", "")))

	text := `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","parameters":{"shared_memory_region":"in/é","shared_memory_byte_size":12,"shared_memory_offset":4}}],
		"outputs":[{"name":"y","parameters":{"binary_data":false,"shared_memory_region":"out","shared_memory_byte_size":12,"shared_memory_offset":4}}]}`
	got, data := v.inference("identity", text, nil).tensors(t)
	require.Nil(t, data)
	require.JSONEq(t, `{"model_name":"identity","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[3],
		"parameters":{"shared_memory_region":"out","shared_memory_byte_size":12,"shared_memory_offset":4}}]}`, got)
	b := make([]byte, 32)
	require.NoError(t, testenv.ErrorOf(f.ReadAt(b, 0)))
	require.Equal(t, floats(1, 2, 3, 4, 0, 2, 3, 4), b)

	for _, c := range []struct {
		what, body string
		status     int
	}{
		{"/region/out/register", `{"key":"` + key + `","byte_size":1}`, 400},
		{"/region/n/register", `{"key":"` + key + `"}`, 400},
		{"/region/n/register", `{"byte_size":1}`, 400},
		{"/region/n/register", ``, 400},
		{"/region/n/register", `{"key":"` + key + `","byte_size":-1}`, 400},
		{"/region/n/register", `{"key":"` + key + `","byte_size":33}`, 400},
		{"/region/n/register", `{"key":"../` + key + `","byte_size":1}`, 400},
		{"/region/n/register", `{"key":7,"byte_size":1}`, 400},
		{"/region/n/register", strings.Repeat(" ", 1<<17), 413},
		{"/region/n/unregister", ``, 404},
	} {
		v.do("POST", at+c.what, []byte(c.body)).message(t, c.status)
	}
	v.do("GET", at+"/region/n/status", nil).message(t, 404)
	require.NoError(t, f.Truncate(16))
	require.Contains(t, v.inference("identity", text, nil).message(t, 400), "cut off")
	ok("POST", at+"/region/out/unregister", "")
	ok("POST", at+"/unregister", "{}")
	require.Equal(t, "[]", string(ok("GET", at+"/status", "")))
}
