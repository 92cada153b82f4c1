package syclobj

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestParseFilter(t *testing.T) {
	for _, c := range []struct{ in, canonical string }{
		{"opencl:cpu:0", "opencl:cpu:0"},
		{"cpu", "cpu"},
		{"level_zero:gpu:1", "level_zero:gpu:1"},
		{"0", "0"},
		{"opencl", "opencl"},
		{"gpu:2", "gpu:2"},
		{"cuda:3", "cuda:3"},
		{" GPU , OpenCL:CPU:00 ", "gpu,opencl:cpu:0"},
		{"accelerator,gpu,cpu", "accelerator,gpu,cpu"},
		{"host", "host"},
		{"Host", "host"},
	} {
		t.Run(c.in, func(t *testing.T) {
			require.Equal(t, c.canonical, testenv.Must(parseFilter(c.in))(t))
		})
	}
}

func TestParseFilterErrors(t *testing.T) {
	for _, c := range []struct{ in, part, reason string }{
		{"", "", "is empty"},
		{"  ", "  ", "is empty"},
		{"cpu,", "", "empty alternative"},
		{"cpu::0", "cpu::0", "empty field"},
		{"opencl:", "opencl:", "empty field"},
		{"cpu:opencl", "cpu:opencl", "out of order"},
		{"cpu:cpu", "cpu:cpu", "repeated"},
		{"opencl:cpu:0:1", "opencl:cpu:0:1", "repeated"},
		{"0:cpu", "0:cpu", "out of order"},
		{"-1", "-1", "is neither a backend"},
		{"4294967296", "4294967296", "is neither a backend"},
		{"*:gpu", "*", "is neither a backend"},
		{"xpu", "xpu", "is neither a backend"},
		{"host:0", "host:0", "stands alone"},
		{"cpu,host", "host", "stands alone"},
		{"cpu\x00", "cpu\x00", "is neither a backend"},
	} {
		t.Run(c.in, func(t *testing.T) {
			_, err := parseFilter(c.in)
			testenv.Failed(t, err, ErrArgument, fmt.Sprintf("filter string %q: %q ", c.in, c.part))
			require.ErrorContains(t, err, c.reason)
			require.Contains(t, err.Error(), "opencl:cpu:0", "the error shows the grammar")
		})
	}
}

// filterForm matches one alternative of a filter: each part at most once, in order.
var filterForm = regexp.MustCompile(`^(?:(opencl|level_zero|cuda|hip)(?::|$))?(?:(cpu|gpu|accelerator)(?::|$))?([0-9]+)?$`)

// byForm parses a filter by filterForm.
func byForm(s string) (want string, ok bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "host" {
		return s, true
	}
	var terms []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		m := filterForm.FindStringSubmatch(part)
		if m == nil || part == "" || strings.HasSuffix(part, ":") {
			return "", false
		}
		var fields []string
		for _, name := range m[1:3] {
			if name != "" {
				fields = append(fields, name)
			}
		}
		if m[3] != "" {
			n, fits := new(big.Int).SetString(m[3], 10)
			if !fits || n.BitLen() > 31 {
				return "", false
			}
			fields = append(fields, n.String())
		}
		terms = append(terms, strings.Join(fields, ":"))
	}
	return strings.Join(terms, ","), true
}

// FuzzParseFilter: valid strings are parsed correctly, and invalid strings are refused.
func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{"opencl:cpu", "cuda:gpu:1,0", " HIP : gpu", "level_zero:7", "gpu:", "cpu:2147483647", "cpu:2147483648", "00:1", "opencl:cpu:0", "gpu,cpu", "host", "0", "", ":", ",", "level_zero:gpu:18446744073709551616", "cpu:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := parseFilter(s)
		want, ok := byForm(s)
		require.Equal(t, ok, err == nil, "%q: %v", s, err)
		if err != nil {
			require.ErrorIs(t, err, ErrArgument)
			return
		}
		require.Equal(t, want, parsed, "%q", s)
		again, err := parseFilter(parsed)
		require.NoError(t, err, "the canonical form %q parses", parsed)
		require.Equal(t, parsed, again)
	})
}
