package values_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

type counter struct{ n int }

func (c *counter) Release() { c.n++ }

func TestRelease(t *testing.T) {
	type tuple []any
	c := &counter{}
	for _, tc := range []struct {
		name string
		v    any
		n    int
	}{
		{"a value", c, 1},
		{"a list in a tuple", tuple{c, []any{1, c}}, 2},
		{"a map of texts", map[string]any{"a": c, "b": nil, "c": "text"}, 1},
		{"keys", map[any]any{c: tuple{c}, 1: 2}, 2},
		{"values without a method", []any{nil, 1, []byte("ab"), []int{1}, tuple(nil)}, 0},
	} {
		c.n = 0
		values.Release(tc.v)
		assert.Equal(t, tc.n, c.n, tc.name)
	}
}
