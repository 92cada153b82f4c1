package rest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// What the scanner passes over is what encoding/json calls valid, but for the numbers that
// JSON has no digits for, for strings that are not UTF-8, and for the bound on depth.
func FuzzSkip(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"a":[1,2.5e-3,-0,"x\u00e9\n"],"b":{"c":null}}`, `[1,]`, `{"a":1,}`, `01`, `1.`, `.5`, `+1`, `1e`, `"\x"`, `"`, "\"\x01\"",
		`[[[[]]]]`, `tru`, `true false`, ` null `, `NaN`, `-Infinity`, `{"a" 1}`, `{1:2}`, `[1 2]`, "\"\xff\"", `"\ud800"`, `-`, `"\u12g4"`, `{]`, `[}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := scanner{b: b}
		err := s.skip(0)
		if err == nil {
			err = s.end()
		}
		if err != nil {
			require.Equal(t, oip.Invalid, oip.As(err).Kind)
		}
		if bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Infinity")) || bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) > maxDepth ||
			!json.Valid(bytes.ToValidUTF8(b, []byte("?"))) && json.Valid(b) || !bytes.Equal(b, bytes.ToValidUTF8(b, []byte("?"))) {
			return
		}
		require.Equal(t, json.Valid(b), err == nil, "%q: %v", b, err)
	})
}

func TestDeepNesting(t *testing.T) {
	s := scanner{b: []byte(strings.Repeat("[", 1<<20))}
	require.ErrorContains(t, s.skip(0), "nested too deep")
	s = scanner{b: []byte(strings.Repeat(`{"a":`, 1<<20))}
	require.ErrorContains(t, s.skip(0), "nested too deep")
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		`"abc"`: "abc", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u00e9é"`: "éé", `"\ud83d\ude00"`: "😀", `"\ud800x"`: "\ufffdx", `""`: "",
	} {
		s := scanner{b: []byte(in)}
		got, err := s.text()
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, s.end())
		var std string
		require.NoError(t, json.Unmarshal([]byte(in), &std))
		require.Equal(t, std, got)
		var back string
		require.NoError(t, json.Unmarshal(appendString(nil, got), &back))
		require.Equal(t, got, back)
	}
	var back string
	require.NoError(t, json.Unmarshal(appendString(nil, "\xff\x00\x1f\x7f</script>"), &back))
	require.Equal(t, "\ufffd\x00\x1f\x7f</script>", back)
}

func TestInteger(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, " 12": 12,
	} {
		s := scanner{b: []byte(in)}
		got, err := s.integer()
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, in := range []string{"", "-", "1.0", "1e2", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "99999999999999999999999", "x", "01", `"1"`} {
		s := scanner{b: []byte(in)}
		_, err := s.integer()
		if err == nil {
			err = s.end()
		}
		require.Equal(t, oip.Invalid, oip.As(err).Kind, in)
	}
}

func fill(t testing.TB, d oip.Datatype, shape []int64, data string) ([]byte, error) {
	n, err := oip.Bytes(d, shape)
	require.NoError(t, err)
	p := make([]byte, n)
	return p, fillJSON(p, "x", d, shape, []byte(data))
}

// Every datatype's smallest and largest numbers are read and written, and the next ones refused.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		d    oip.Datatype
		good string
		bad  []string
	}{
		{oip.BOOL, "true,false", []string{"1", "0", "null", `"true"`, "True"}},
		{oip.UINT8, "0,255", []string{"256", "-1", "1.0", "1e1", "true"}},
		{oip.UINT16, "0,65535", []string{"65536", "-1"}},
		{oip.UINT32, "0,4294967295", []string{"4294967296", "-1"}},
		{oip.UINT64, "0,18446744073709551615", []string{"18446744073709551616", "-1", "184467440737095516150"}},
		{oip.INT8, "-128,127", []string{"128", "-129"}},
		{oip.INT16, "-32768,32767", []string{"32768", "-32769"}},
		{oip.INT32, "-2147483648,2147483647", []string{"2147483648", "-2147483649"}},
		{oip.INT64, "-9223372036854775808,9223372036854775807", []string{"9223372036854775808", "-9223372036854775809", "1.5"}},
		{oip.FP32, "1.5,-Infinity,3.4028235e+38,1e-45,0.1,NaN,-0.0,0.0,-7.0,1e+06", []string{"1e39", "true", `"1"`, "+1", "0x1p3", "1_0", "inf", "nan", ".5", "Inf"}},
		{oip.FP64, "1.5,Infinity,1.7976931348623157e+308,5e-324,0.1,NaN", []string{"1e309", "-1e309", "null"}},
	} {
		n := int64(strings.Count(c.good, ",") + 1)
		p, err := fill(t, c.d, []int64{n}, "["+c.good+"]")
		require.NoError(t, err, c.d)
		require.Equal(t, c.good, string(appendElements(nil, c.d, p)), c.d)
		for _, bad := range c.bad {
			_, err := fill(t, c.d, []int64{1}, "["+bad+"]")
			require.Equal(t, oip.Invalid, oip.As(err).Kind, "%s %s", c.d, bad)
		}
	}
	p, err := fill(t, oip.INT8, []int64{1}, "[-0]")
	require.NoError(t, err)
	require.Equal(t, []byte{0}, p)
	p, err = fill(t, oip.UINT8, []int64{1}, "[-0]")
	require.NoError(t, err)
	require.Equal(t, []byte{0}, p)
	for _, d := range []oip.Datatype{oip.FP16, oip.BF16} {
		_, err := fill(t, d, []int64{1}, "[1]")
		require.Equal(t, oip.Unsupported, oip.As(err).Kind)
	}
	long, err := fill(t, oip.FP64, []int64{1}, "["+strings.Repeat("1", 300)+"."+strings.Repeat("3", 1<<20)+"]")
	require.NoError(t, err)
	want, err := strconv.ParseFloat(strings.Repeat("1", 300), 64)
	require.NoError(t, err)
	require.InEpsilon(t, want, math.Float64frombits(binary.NativeEndian.Uint64(long)), 1e-12)
}

// A JSON number without a fraction and an exponent is an integer for most clients: an integer has no
// -0, and a list of whole floats would be a list of integers.
func TestWholeFloats(t *testing.T) {
	v := serve(t, setup{})
	values := floats(float32(math.Copysign(0, -1)), 0, 1, -2, 100000, 1e6, 16777216, -0.5)
	r := v.inference("identity", strings.ReplaceAll(binaryFloats(8), "true", "false"), values)
	text, _ := r.tensors(t)
	require.Contains(t, text, `"data":[-0.0,0.0,1.0,-2.0,100000.0,1e+06,1.6777216e+07,-0.5]`)
}

// A list is flat, or as the shape has it.
func TestNesting(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		data  string
		want  string // "" is a refusal
	}{
		{[]int64{}, "[7]", "7"},
		{[]int64{}, "7", ""},
		{[]int64{}, "[[7]]", ""},
		{[]int64{}, "[]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5,6]", "1,2,3,4,5,6"},
		{[]int64{2, 3}, " [ [1, 2,3 ] ,[4,5,6]] ", "1,2,3,4,5,6"},
		{[]int64{2, 3}, "[[1,2],[3,4],[5,6]]", ""},
		{[]int64{2, 3}, "[[1,2,3,4,5,6]]", ""},
		{[]int64{2, 3}, "[[1,2,3],4,5,6]", ""},
		{[]int64{2, 3}, "[1,2,3,[4,5,6]]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6],[7,8,9]]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5,6,7]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6],[]]", ""},
		{[]int64{2, 3}, "[[],[1,2,3],[4,5,6]]", ""},
		{[]int64{2, 3}, "[[[1,2,3]],[[4,5,6]]]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6]]]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6]] x", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6]", ""},
		{[]int64{2, 3}, "[[1,2,3][4,5,6]]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6],]", ""},
		{[]int64{2, 3}, "[,1,2,3,4,5,6]", ""},
		{[]int64{2, 3}, "{}", ""},
		{[]int64{2, 3}, "", ""},
		{[]int64{2, 1, 2}, "[[[1,2]],[[3,4]]]", "1,2,3,4"},
		{[]int64{2, 1, 2}, "[[1,2],[3,4]]", ""},
		{[]int64{2, 1, 2}, "[[[1],[2]],[[3,4]]]", ""},
		{[]int64{0}, "[]", "[]"},
		{[]int64{0}, "[1]", ""},
		{[]int64{2, 0}, "[[],[]]", "[]"},
		{[]int64{2, 0}, "[]", "[]"},
		{[]int64{0, 2}, "[[1,2]]", ""},
		{[]int64{2, 0}, "[[[]]]", ""},
		{[]int64{1, 1}, "[[1]]", "1"},
		{[]int64{1, 1}, "[1]", "1"},
	} {
		p, err := fill(t, oip.INT32, c.shape, c.data)
		if c.want == "" {
			require.Error(t, err, "%v %s", c.shape, c.data)
			require.Equal(t, oip.Invalid, oip.As(err).Kind, "%v %s", c.shape, c.data)
			continue
		}
		require.NoError(t, err, "%v %s", c.shape, c.data)
		require.Equal(t, strings.Trim(c.want, "[]"), string(appendElements(nil, oip.INT32, p)))
	}
}

// FuzzData: what is read as a list of numbers is what encoding/json reads.
func FuzzData(f *testing.F) {
	f.Add("[1,2,3,4]", int64(2), int64(2))
	f.Add("[[1,2],[3,4]]", int64(2), int64(2))
	f.Add("[[1e3],[0.1]]", int64(2), int64(1))
	f.Add("[]", int64(0), int64(3))
	f.Add("[1,", int64(1), int64(1))
	f.Fuzz(func(t *testing.T, data string, rows, columns int64) {
		if rows < 0 || columns < 0 || rows > 100 || columns > 100 {
			return
		}
		p, err := fill(t, oip.FP64, []int64{rows, columns}, data)
		if err != nil {
			require.Equal(t, oip.Invalid, oip.As(err).Kind)
		}
		if strings.Contains(data, "NaN") || strings.Contains(data, "Infinity") {
			return
		}
		var want []float64
		if json.Unmarshal([]byte(data), &want) != nil || strings.Contains(data, "null") {
			want = nil
			var nested [][]float64
			if strings.Contains(data, "null") || json.Unmarshal([]byte(data), &nested) != nil || int64(len(nested)) != rows {
				if !(rows*columns == 0) {
					require.Error(t, err, "%q", data)
				}
				return
			}
			for _, row := range nested {
				if int64(len(row)) != columns {
					require.Error(t, err, "%q", data)
					return
				}
				want = append(want, row...)
			}
		}
		if int64(len(want)) != rows*columns || data == "null" {
			return
		}
		require.NoError(t, err, "%q", data)
		for i, v := range want {
			require.Equal(t, v, math.Float64frombits(binary.NativeEndian.Uint64(p[8*i:])))
		}
	})
}

func TestHeader(t *testing.T) {
	var h header
	require.NoError(t, h.parse([]byte(`{"model_name":"x","id":"a\"b","unknown":{"a":[{}]},"parameters":{"timeout":5,"priority":1,"binary_data_output":true,"mine":[1]},
		"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8,"other":null},"more":1},
		 {"shape":[],"data":[ 1 ],"name":"y","datatype":"INT8","parameters":{}},
		 {"name":"z","datatype":"INT8","shape":[0],"data":null,"parameters":{"shared_memory_region":"r","shared_memory_byte_size":3,"shared_memory_offset":9}}],
		"outputs":[{"name":"o","parameters":{"binary_data":false,"classification":0}},{"name":"p"},{"name":"q","parameters":null}]} `)))
	require.Equal(t, `a\"b`, h.id)
	require.EqualValues(t, 5, h.params.timeout)
	require.True(t, h.params.binary)
	require.Equal(t, []input{
		{name: "x", datatype: "FP32", shape: []int64{1, 2}, params: params{has: hasSize, size: 8}},
		{name: "y", datatype: "INT8", shape: []int64{}, data: []byte("[ 1 ]")},
		{name: "z", datatype: "INT8", shape: []int64{0}, params: params{has: hasRegion | hasRegionSize | hasOffset, region: "r", regionSize: 3, offset: 9}},
	}, h.inputs)
	require.Len(t, h.outputs, 3)
	require.False(t, h.binary(&h.outputs[0]))
	require.True(t, h.binary(&h.outputs[1]))

	var nulls header
	require.NoError(t, nulls.parse([]byte(`{"id":null,"parameters":null,"outputs":null,"inputs":[]}`)))

	const in = `{"name":"x","datatype":"FP32","shape":[1],"data":[1]%s}`
	tensor := func(more string) string { return `{"inputs":[` + fmt.Sprintf(in, more) + `]}` }
	request := func(more string) string { return `{"inputs":[]` + more + `}` }
	for _, c := range []struct{ text, says string }{
		{"", "byte 0: it ends"},
		{"[]", "expected {"},
		{"{}", `no "inputs"`},
		{`{"inputs":null}`, "expected ["},
		{`{"inputs":[1]}`, "expected {"},
		{`{"inputs":[{}]}`, "lacks one of"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}`, `needs one of "data"`},
		{`{"inputs":[{"name":"x","shape":[1.5],"datatype":"FP32","data":[]}]}`, "whole number"},
		{`{"inputs":[{"name":"x","shape":1,"datatype":"FP32","data":[]}]}`, "expected ["},
		{`{"inputs":[{"name":"x","shape":[` + strings.Repeat("1,", oip.MaxRank) + `1],"datatype":"FP32","data":[]}]}`, "too many elements"},
		{`{"inputs":[{"name":1,"shape":[1],"datatype":"FP32","data":[]}]}`, "expected a string"},
		{tensor(`,"data":[2]`), "there twice"},
		{tensor(`,"d\u0061ta":[2]`), "there twice"},
		{tensor(`,"name":"y"`), "there twice"},
		{tensor(`,"parameters":{"binary_data_size":4}`), "has 2 of them"},
		{tensor(`,"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), "has 2 of them"},
		{tensor(`,"parameters":{"shared_memory_byte_size":4}`), "come together"},
		{tensor(`,"parameters":{"shared_memory_offset":4}`), "come together"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"}}]}`, "come together"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":-4}}]}`, "is -4"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4,"binary_data_size":4}}]}`, "there twice"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":"4"}}]}`, "expected a number"},
		{request(`,"inputs":[]`), "there twice"},
		{request(`,"id":1`), "expected a string"},
		{request(`,"id":"a","id":"b"`), "there twice"},
		{request("," + `"id":"` + "\xff" + `"`), "UTF-8"},
		{request(`,"parameters":[]`), "expected {"},
		{request(`,"parameters":{"timeout":"1"}`), "expected a number"},
		{request(`,"parameters":{"timeout":-1}`), "is -1"},
		{request(`,"parameters":{"timeout":1e30}`), "whole number"},
		{request(`,"parameters":{"priority":"high"}`), "expected a number"},
		{request(`,"parameters":{"binary_data_output":1}`), "true or false"},
		{request(`,"parameters":{"headers":1}`), "reserved"},
		{request(`,"parameters":{"triton_x":1}`), "reserved"},
		{request(`,"parameters":{"sequence_id":7}`), "sequences are not served"},
		{request(`,"parameters":{"sequence_start":true}`), "sequences are not served"},
		{request(`,"parameters":{"sequence_id":"s"}`), "sequences are not served"},
		{request(`,"outputs":[{}]`), `no "name"`},
		{request(`,"outputs":[{"name":"y","name":"y"}]`), "there twice"},
		{request(`,"outputs":[{"name":"y","parameters":{"classification":3}}]`), "classification is not served"},
		{request(`,"outputs":[{"name":"y","parameters":{"binary_data":true,"shared_memory_region":"r","shared_memory_byte_size":4}}]`), "exclude each other"},
		{request(`} x`), "follows the value"},
		{request(`,"outputs":[` + strings.Repeat(`{"name":"y"},`, maxTensors) + `{"name":"y"}]`), "too many elements"},
		{request(strings.Repeat(`,"a":1`, maxMembers)), "too many members"},
		{request(`,"a":` + strings.Repeat("[", 100)), "too deep"},
		{request(`,`), "comma before the end"},
	} {
		var h header
		err := h.parse([]byte(c.text))
		require.Error(t, err, c.text)
		require.Contains(t, err.Error(), c.says, c.text)
		require.Contains(t, []oip.Kind{oip.Invalid, oip.Unsupported}, oip.As(err).Kind)
	}
	var zero header
	require.NoError(t, zero.parse([]byte(request(`,"parameters":{"sequence_id":0,"sequence_start":false,"sequence_end":false}`))))
	zero = header{}
	require.NoError(t, zero.parse([]byte(request(`,"parameters":{"sequence_id":""}`))))
}

func BenchmarkHeader(b *testing.B) {
	text := []byte(`{"inputs":[{"name":"luminance","shape":[16,16],"datatype":"FP32","parameters":{"binary_data_size":1024}}],"outputs":[{"name":"edges","parameters":{"binary_data":true}}]}`)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var h header
			if err := h.parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		type tensor struct {
			Name, Datatype string
			Shape          []int64
			Data           json.RawMessage
			Parameters     map[string]any
		}
		b.ReportAllocs()
		for b.Loop() {
			var h struct {
				ID              string
				Parameters      map[string]any
				Inputs, Outputs []tensor
			}
			if err := json.Unmarshal(text, &h); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkData(b *testing.B) {
	const n = 1 << 16
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, ",%g", float32(i)*0.37)
	}
	data := []byte("[" + s.String()[1:] + "]")
	p := make([]byte, 4*n)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := fillJSON(p, "x", oip.FP32, []int64{n}, data); err != nil {
			b.Fatal(err)
		}
	}
}
