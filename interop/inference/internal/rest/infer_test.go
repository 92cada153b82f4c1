//go:build cgo && linux

package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestInfer checks that all encodings of inputs and outputs give the same elements.
func TestInfer(t *testing.T) {
	v := serve(t, setup{})
	const js = `"inputs":[{"name":"a","shape":[2,2],"datatype":"INT64","data":[1,2,3,4]},{"name":"b","shape":[2,2],"datatype":"INT64","data":[[10,20],[30,40]]}]`
	two := func(params string) string {
		return `{"id":"\u00e9\"","inputs":[{"name":"a","shape":[2,2],"datatype":"INT64","parameters":{"binary_data_size":32}},` +
			`{"name":"b","shape":[2,2],"datatype":"INT64","data":[[10,20],[30,40]]}]` + params + `}`
	}
	sum := []int64{11, 22, 33, 44}
	a, _ := binary.Append(nil, binary.NativeEndian, []int64{1, 2, 3, 4})
	bin, _ := binary.Append(nil, binary.NativeEndian, sum)
	total, _ := binary.Append(nil, binary.NativeEndian, 110.0)
	const (
		sumJSON   = `{"name":"sum","datatype":"INT64","shape":[2,2],"data":[11,22,33,44]}`
		totalJSON = `{"name":"total","datatype":"FP64","shape":[],"data":[110]}`
		sumBin    = `{"name":"sum","datatype":"INT64","shape":[2,2],"parameters":{"binary_data_size":32}}`
		totalBin  = `{"name":"total","datatype":"FP64","shape":[],"parameters":{"binary_data_size":8}}`
	)
	for what, c := range map[string]struct {
		text string
		in   []byte
		want string
		out  []byte
	}{
		"json":             {`{` + js + `}`, nil, sumJSON + "," + totalJSON, nil},
		"binary in":        {two(""), a, sumJSON + "," + totalJSON, nil},
		"binary out":       {two(`,"parameters":{"binary_data_output":true}`), a, sumBin + "," + totalBin, append(bin, total...)},
		"one, json":        {two(`,"outputs":[{"name":"total"}]`), a, totalJSON, nil},
		"one, binary":      {two(`,"outputs":[{"name":"total","parameters":{"binary_data":true}}]`), a, totalBin, total},
		"the other order":  {two(`,"outputs":[{"name":"total"},{"name":"sum"}],"parameters":{"binary_data_output":true}`), a, totalBin + "," + sumBin, append(total, bin...)},
		"mixed":            {two(`,"outputs":[{"name":"total","parameters":{"binary_data":true}},{"name":"sum","parameters":{"binary_data":false}}]`), a, totalBin + "," + sumJSON, total},
		"mixed by default": {two(`,"outputs":[{"name":"total","parameters":{"binary_data":false}},{"name":"sum"}],"parameters":{"binary_data_output":true}`), a, totalJSON + "," + sumBin, bin},
	} {
		t.Run(what, func(t *testing.T) {
			id := ""
			if strings.Contains(c.text, `"id"`) {
				id = `"id":"é\"",`
			}
			for _, encoding := range []string{"", "gzip"} {
				for _, accept := range []string{"", "gzip", "gzip, deflate, br"} {
					body := append([]byte(c.text), c.in...)
					headers := []string{"Accept-Encoding", accept}
					if c.in != nil {
						headers = append(headers, headerLength, strconv.Itoa(len(c.text)))
					}
					if encoding != "" {
						headers = append(headers, "Content-Encoding", encoding)
						body = compressed(t, body)
					}
					r := v.do("POST", "/v2/models/sum/infer", body, headers...)
					r.body = plain(t, r)
					text, out := r.tensors(t)
					require.JSONEq(t, `{"model_name":"sum","model_version":"1",`+id+`"outputs":[`+c.want+`]}`, text)
					require.Equal(t, c.out, out)
				}
			}
		})
	}
	r := v.do("POST", "/v2/models/sum/versions/1/infer", []byte(`{`+js+`}`))
	require.Contains(t, string(r.body), `"model_version":"1"`)
}

func compressed(t testing.TB, p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	require.NoError(t, testenv.ErrorOf(w.Write(p)))
	require.NoError(t, w.Close())
	return b.Bytes()
}

// plain returns the body uncompressed.
func plain(t testing.TB, r response) []byte {
	if r.header.Get("Content-Encoding") == "" {
		return r.body
	}
	from := testenv.Must(gzip.NewReader(bytes.NewReader(r.body)))(t)
	return testenv.Must(io.ReadAll(from))(t)
}

// TestLargeTensors checks that large tensors are transferred completely, as binary data and as JSON, compressed if
// the client accepts a coding.
func TestLargeTensors(t *testing.T) {
	v := serve(t, setup{})
	const n = 300_000
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i%1000) / 7
	}
	data := floats(values...)
	list := testenv.Must(json.Marshal(values))(t)
	for _, out := range []string{"true", "false"} {
		for _, accept := range []string{"", "gzip", "deflate"} {
			for _, in := range []string{"binary", "json"} {
				text, body := fmt.Sprintf(`{"parameters":{"binary_data_output":%s},"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","data":%s}]}`, out, n, list), []byte(nil)
				if in == "binary" {
					text, body = strings.ReplaceAll(binaryFloats(n), "true", out), data
				}
				r := v.inference("identity", text, body, "Accept-Encoding", accept)
				require.Equal(t, map[string]string{"gzip": "gzip"}[accept], r.header.Get("Content-Encoding"))
				r.body = plain(t, r)
				text, back := r.tensors(t)
				if out == "true" {
					require.Equal(t, data, back)
					continue
				}
				var got struct{ Outputs []struct{ Data []float32 } }
				require.NoError(t, json.Unmarshal([]byte(text), &got))
				require.Equal(t, values, got.Outputs[0].Data)
			}
		}
	}
}

// TestDatatypes checks datatypes without a JSON form, and tensors without elements.
func TestDatatypes(t *testing.T) {
	v := serve(t, setup{})
	const half = `{"inputs":[{"name":"a","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},{"name":"b","shape":[1],"datatype":"BF16","parameters":{"binary_data_size":2}}]`
	_, pair := v.inference("halves", half+`,"parameters":{"binary_data_output":true}}`, []byte("aabb")).tensors(t)
	require.Equal(t, "aabb", string(pair))
	require.Contains(t, v.inference("halves", half+`}`, []byte("aabb")).message(t, 400), "no JSON")
	require.Contains(t, v.inference("halves", `{"parameters":{"binary_data_output":true},"inputs":[{"name":"a","shape":[1],"datatype":"FP16","data":[1]}]}`, nil).message(t, 400), "no JSON")

	// No elements at all.
	text, data := v.inference("identity", binaryFloats(0), []byte{}).tensors(t)
	require.Contains(t, text, `"shape":[0],"parameters":{"binary_data_size":0}`)
	require.Empty(t, data)
	text, _ = v.inference("identity", `{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}`, nil).tensors(t)
	require.Contains(t, text, `"shape":[0],"data":[]`)
}

// TestChunkedBody checks that bodies without a Content-Length are served, with the bounds of others.
func TestChunkedBody(t *testing.T) {
	v := serve(t, setup{limits: func(l *limits) { l.body, l.grace = 1<<16, time.Second }})
	send := func(path, text, data, coding string) response {
		whole := []byte(text + data)
		if coding != "" {
			whole = compressed(t, whole)
		}
		r, err := http.NewRequest("POST", "http://"+v.address+path, io.MultiReader(bytes.NewReader(whole))) // of unknown length
		require.NoError(t, err)
		if data != "" {
			r.Header.Set(headerLength, strconv.Itoa(len(text)))
		}
		r.Header.Set("Content-Encoding", coding)
		answer := testenv.Must(v.client.Do(r))(t)
		defer answer.Body.Close()
		body := testenv.Must(io.ReadAll(answer.Body))(t)
		return response{answer.StatusCode, answer.Header, body}
	}
	const path = "/v2/models/identity/infer"
	long := make([]float32, 10000)
	long[9999] = 7
	for _, coding := range []string{"", "gzip"} {
		text, _ := send(path, `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2.5]}]}`+strings.Repeat(" ", 10000), "", coding).tensors(t)
		require.Contains(t, text, `"data":[1.0,2.5]`)
		_, data := send(path, binaryFloats(10000), string(floats(long...)), coding).tensors(t)
		require.Equal(t, floats(long...), data)
		require.Contains(t, send(path, binaryFloats(2), "12345678x", coding).message(t, 400), "longer")
		require.Contains(t, send(path, binaryFloats(2), "1234567", coding).message(t, 400), "shorter")
		require.Equal(t, 200, send("/v2/repository/index", `{"ready":true}`, "", coding).status)
	}
	require.Equal(t, 200, send("/v2/repository/index", "", "", "").status)
	require.Contains(t, send(path, binaryFloats(1<<15), strings.Repeat("x", 4<<15), "").message(t, 413), "more than 65536 bytes")
	require.Contains(t, send("/v2/repository/index", strings.Repeat(" ", maxSmall+1), "", "").message(t, 413), "more than 65536 bytes")
	const head = "POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	for text, status := range map[string]int{"2\r\n{": 408, "2\r\n{}\r\n": 408, "2\r\n{}xx": 400, "what\r\n": 400} {
		c := v.dial()
		c.send(head + text)
		r := c.answer()
		require.Equal(t, status, r.StatusCode, "%q", text)
		require.True(t, r.Close, "%q", text)
	}
}
