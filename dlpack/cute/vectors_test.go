package cute

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// vector is one line of testdata/cute_layouts.jsonl, recorded from CuTe DSL 4.8.1.
type vector struct {
	Shape   []int64             `json:"shape"`
	Strides []int64             `json:"strides"`
	Narrow  bool                `json:"use_32bit_stride"`
	Ops     []json.RawMessage   `json:"ops"`
	Layout  string              `json:"layout"`
	Error   string              `json:"error"`
	calls   []func(*Spec) error `json:"-"`
}

// decode turns the operations, pairs of a name and its keyword arguments, into
// calls.
func (v *vector) decode() error {
	for _, op := range v.Ops {
		var name string
		var args struct {
			LeadingDim   *int  `json:"leading_dim"`
			Mode         *int  `json:"mode"`
			StrideOrder  []int `json:"stride_order"`
			Divisibility int64 `json:"divisibility"`
		}
		if err := json.Unmarshal(op, &[]any{&name, &args}); err != nil {
			return err
		}
		switch name {
		case "mark_layout_dynamic":
			lead := Deduce
			if args.LeadingDim != nil {
				lead = *args.LeadingDim
			}
			v.calls = append(v.calls, func(s *Spec) error { return s.MarkLayoutDynamic(lead) })
		case "mark_compact_shape_dynamic":
			v.calls = append(v.calls, func(s *Spec) error {
				return s.MarkCompactShapeDynamic(*args.Mode, args.StrideOrder, args.Divisibility)
			})
		default:
			return fmt.Errorf("unknown operation %q", name)
		}
	}
	return nil
}

var float32Type = dlpack.DataType{Code: 2, Bits: 32, Lanes: 1}

// run converts and marks; the error is that of the first call that fails.
func (v *vector) run(rule LeadingRule, width StrideWidth) (Spec, error) {
	s, err := NewSpec(dlpack.View{
		Shape: v.Shape, Strides: v.Strides, DataType: float32Type, Device: dlpack.Device{Type: 1},
	}, Options{Leading: rule, Strides: width})
	for _, call := range v.calls {
		if err != nil {
			break
		}
		err = call(&s)
	}
	return s, err
}

func readVectors(t testing.TB) []vector {
	f := testenv.Opened(os.Open("testdata/cute_layouts.jsonl"))(t)
	var vectors []vector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var v vector
		require.NoError(t, json.Unmarshal(lines.Bytes(), &v), "%s", lines.Text())
		require.NoError(t, v.decode(), "%s", lines.Text())
		vectors = append(vectors, v)
	}
	require.NoError(t, lines.Err())
	return vectors
}

// TestVectors: every recorded case gives the same layout or the same error, a
// final full stop aside.
func TestVectors(t *testing.T) {
	vectors := readVectors(t)
	require.Len(t, vectors, 846)
	passed := 0
	for i, v := range vectors {
		width := Strides64
		if v.Narrow {
			width = Strides32
		}
		s, err := v.run(LeadingSkipSizeOne, width)
		about := fmt.Sprintf("line %d: %v:%v %s", i+1, v.Shape, v.Strides, v.Ops)
		if v.Error != "" {
			require.Error(t, err, about)
			require.Equal(t, strings.TrimSuffix(v.Error, "."), strings.TrimSuffix(err.Error(), "."), about)
		} else {
			require.NoError(t, err, about)
			require.Equal(t, v.Layout, s.Layout(), about)
		}
		passed++
	}
	t.Logf("%d of %d recorded cases agree", passed, len(vectors))
}
