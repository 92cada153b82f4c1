package rest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// fill parses the data of an input, as part of a request, into memory.
func fill(t testing.TB, d oip.Datatype, shape []int64, data string) ([]byte, error) {
	n := testenv.Must(oip.Bytes(d, shape))(t)
	p := make([]byte, n)
	extents := testenv.Must(json.Marshal(shape))(t)
	var h header
	if err := h.parse(fmt.Appendf(nil, `{"inputs":[{"name":"x","datatype":"%s","shape":%s,"data":%s}]}`, d, extents, data)); err != nil {
		return p, err
	}
	if len(h.Inputs) != 1 || h.Inputs[0].Data.text == nil { // of a fuzz target
		return p, oip.Errorf(oip.Invalid, "no data")
	}
	return p, h.Inputs[0].fill(p, d)
}

// TestElementErrors checks that the error of an element names the tensor, the element and the position in the request.
func TestElementErrors(t *testing.T) {
	const text = `{"inputs":[{"name":"x","datatype":"UINT8","shape":[2,2],"data":[[1,2],[3,256]]}]}`
	var h header
	require.NoError(t, h.parse([]byte(text)))
	err := h.Inputs[0].fill(make([]byte, 4), oip.UINT8)
	require.EqualError(t, err, fmt.Sprintf(`input "x": element 3, at byte %d of the JSON: 256 is not a valid UINT8`, strings.Index(text, "256")))
}

// TestFloatRounding checks that a number is rounded to FP32 once, without an intermediate FP64.
func TestFloatRounding(t *testing.T) {
	p := testenv.Must(fill(t, oip.FP32, []int64{1}, "[1.00000017881393432617187499]"))(t)
	require.Equal(t, float32(1.00000017881393432617187499), math.Float32frombits(binary.NativeEndian.Uint32(p)))
}

// TestElements checks that the smallest and largest numbers of each datatype are read and written,
// and that the next ones are rejected.
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
		{oip.FP32, "1.5,3.4028235e+38,1e-45,0.1,-0.0,0.0,-7.0,1e+06", []string{"NaN", "-Infinity", "1e39", "true", `"1"`, "+1", "0x1p3", "1_0", "inf", "nan", ".5", "Inf"}},
		{oip.FP64, "1.5,1.7976931348623157e+308,5e-324,0.1", []string{"1e309", "-1e309", "null"}},
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
	p := testenv.Must(fill(t, oip.INT8, []int64{1}, "[-0]"))(t)
	require.Equal(t, []byte{0}, p)
	p = testenv.Must(fill(t, oip.UINT8, []int64{1}, "[-0]"))(t)
	require.Equal(t, []byte{0}, p)
	nan := testenv.Must(binary.Append(nil, binary.NativeEndian, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}))(t)
	require.Equal(t, "NaN,Infinity,-Infinity", string(appendElements(nil, oip.FP64, nan)))
	for _, d := range []oip.Datatype{oip.FP16, oip.BF16} {
		_, err := fill(t, d, []int64{1}, "[1]")
		require.Equal(t, oip.Unsupported, oip.As(err).Kind)
	}
	long := testenv.Must(fill(t, oip.FP64, []int64{1}, "["+strings.Repeat("1", 300)+"."+strings.Repeat("3", 1<<20)+"]"))(t)
	want := testenv.Must(strconv.ParseFloat(strings.Repeat("1", 300), 64))(t)
	require.InEpsilon(t, want, math.Float64frombits(binary.NativeEndian.Uint64(long)), 1e-12)
}

// TestNesting checks that the data of a tensor is a list with as many elements as its shape, which may be nested.
func TestNesting(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		data  string
		want  string // "" if the data must be rejected
	}{
		{[]int64{}, "[7]", "7"},
		{[]int64{}, "7", ""},
		{[]int64{}, `"7"`, ""},
		{[]int64{}, "[]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5,6]", "1,2,3,4,5,6"},
		{[]int64{2, 3}, " [ [1, 2,3 ] ,[4,5,6]] ", "1,2,3,4,5,6"},
		{[]int64{2, 3}, "[1,2,3,4,5]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5,6,7]", ""},
		{[]int64{2, 3}, "[[1,2,3],[4,5,6]]]", ""},
		{[]int64{2, 3}, "[[1,2,3][4,5,6]]", ""},
		{[]int64{2, 3}, "[,1,2,3,4,5,6]", ""},
		{[]int64{2, 3}, "[1,2,3,4,5,{}]", ""},
		{[]int64{2, 3}, "{}", ""},
		{[]int64{2, 3}, "", ""},
		{[]int64{2, 1, 2}, "[[[1,2]],[[3,4]]]", "1,2,3,4"},
		{[]int64{0}, "[1]", ""},
		{[]int64{2, 0}, "[[],[]]", "[]"},
		{[]int64{1}, strings.Repeat("[", 20000), ""},
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

// FuzzData checks that numbers are parsed like in encoding/json.
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
		var want []float64
		if json.Unmarshal([]byte(data), &want) != nil || strings.Contains(data, "null") {
			return
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

// TestHeader checks the JSON of requests: all known members, and the error for each invalid form.
func TestHeader(t *testing.T) {
	var h header
	const text = `{"model_name":"x","id":"a\"b","unknown":{"a":[{}]},"parameters":{"timeout":5,"priority":1,"binary_data_output":true,"mine":[1]},
		"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8,"other":null},"more":1},
		 {"shape":[],"data":[ 1 ],"name":"y","datatype":"INT8","parameters":{}},
		 {"name":"z","datatype":"INT8","shape":[0],"data":null,"parameters":{"shared_memory_region":"r","shared_memory_byte_size":3,"shared_memory_offset":9}}],
		"outputs":[{"name":"o","parameters":{"binary_data":false,"classification":0}},{"name":"p"},{"name":"q","parameters":null}]} `
	require.NoError(t, h.parse([]byte(text)))
	require.Equal(t, `"a\"b"`, string(h.ID.text))
	require.EqualValues(t, 5, h.Params.Timeout)
	require.True(t, h.Params.BinaryOutput)
	size, regionSize := uint64(8), uint64(3)
	require.Equal(t, list[input]{
		{Name: "x", Datatype: "FP32", Shape: list[int64]{1, 2}, Params: params{Size: &size}},
		{Name: "y", Datatype: "INT8", Shape: list[int64]{}, Data: raw{text: []byte("[ 1 ]"), at: strings.Index(text, "[ 1 ]")}},
		{Name: "z", Datatype: "INT8", Shape: list[int64]{0}, Params: params{Region: "r", RegionSize: &regionSize, Offset: 9}},
	}, h.Inputs)
	require.Len(t, h.Outputs, 3)
	require.False(t, !h.inJSON(0))
	require.True(t, !h.inJSON(1))

	var nulls header
	require.NoError(t, nulls.parse([]byte(`{"id":null,"parameters":null,"outputs":null,"inputs":[]}`)))

	const in = `{"name":"x","datatype":"FP32","shape":[1],"data":[1]%s}`
	tensor := func(more string) string { return `{"inputs":[` + fmt.Sprintf(in, more) + `]}` }
	request := func(more string) string { return `{"inputs":[]` + more + `}` }
	for _, c := range []struct{ text, message string }{
		{"", "byte 0: unexpected end"},
		{"[]", "byte 0: a value of another type"},
		{"{}", `no "inputs"`},
		{`{"inputs":null}`, `no "inputs"`},
		{`{"inputs":[1]}`, "byte 11: a value of another type"},
		{`{"inputs":[{}]}`, "lacks one of"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}`, `needs exactly one of "data"`},
		{`{"inputs":[{"name":"x","shape":[1.5],"datatype":"FP32","data":[]}]}`, "another type"},
		{`{"inputs":[{"name":"x","shape":1,"datatype":"FP32","data":[]}]}`, "another type"},
		{`{"inputs":[{"name":"x","shape":[` + strings.Repeat("1,", maxList) + `1],"datatype":"FP32","data":[]}]}`, "too many elements"},
		{`{"inputs":[{"name":1,"shape":[1],"datatype":"FP32","data":[]}]}`, "another type"},
		{tensor(`,"parameters":{"binary_data_size":4}`), "has 2 of them"},
		{tensor(`,"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), "has 2 of them"},
		{tensor(`,"parameters":{"shared_memory_byte_size":4}`), "need each other"},
		{tensor(`,"parameters":{"shared_memory_offset":4}`), "need each other"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"}}]}`, "need each other"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":-4}}]}`, "another type"},
		{`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":"4"}}]}`, "another type"},
		{request(`,"id":1`), "not a string"},
		{request("," + `"id":"` + "\xff" + `"`), "UTF-8"},
		{request(`,"parameters":[]`), "another type"},
		{request(`,"parameters":{"timeout":"1"}`), "another type"},
		{request(`,"parameters":{"timeout":-1}`), "another type"},
		{request(`,"parameters":{"timeout":1e30}`), "another type"},
		{request(`,"parameters":{"binary_data_output":1}`), "another type"},
		{request(`,"parameters":{"sequence_id":7}`), "sequences are not supported"},
		{request(`,"parameters":{"sequence_start":true}`), "sequences are not supported"},
		{request(`,"parameters":{"sequence_id":"s"}`), "sequences are not supported"},
		{request(`,"parameters":{"sequence_id":[{}]}`), "sequences are not supported"},
		{request(`,"outputs":[{}]`), `no "name"`},
		{request(`,"outputs":[{"name":"y","parameters":{"classification":3}}]`), "classification is not supported"},
		{request(`,"outputs":[{"name":"y","parameters":{"binary_data":true,"shared_memory_region":"r","shared_memory_byte_size":4}}]`), "exclude each other"},
		{request(`} x`), "byte 14: invalid character"},
		{request(`,"outputs":[` + strings.Repeat(`{"name":"y"},`, maxList) + `{"name":"y"}]`), "too many elements"},
		{request(`,`), "byte 12: invalid character"},
	} {
		var h header
		err := h.parse([]byte(c.text))
		require.Error(t, err, c.text)
		require.Contains(t, err.Error(), c.message, c.text)
		require.Contains(t, []oip.Kind{oip.Invalid, oip.Unsupported}, oip.As(err).Kind)
	}
	var zero header
	require.NoError(t, zero.parse([]byte(request(`,"parameters":{"sequence_id":0,"sequence_start":false,"sequence_end":false}`))))
	require.Nil(t, zero.Params.Sequence.text, "it would keep the text while the model runs")
	zero = header{}
	require.NoError(t, zero.parse([]byte(request(`,"parameters":{"sequence_id":""}`))))
}
