package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

// open returns the service of this process, because Python starts only once.
var open = sync.OnceValues(openService)

// needService returns the service. If there is no Python with Numba, it ends the test.
func needService(t testing.TB) *service {
	t.Helper()
	s, err := open()
	if err != nil {
		testenv.Missing(t, err, testenv.Python)
	}
	return s
}

// TestWaysAgree: all ways compute the same result.
func TestWaysAgree(t *testing.T) {
	s := needService(t)
	for _, n := range []int{1, 7, 1000, 123_457} {
		a, err := s.signal(n)
		require.NoError(t, err)
		want, err := inGo(a)
		require.NoError(t, err)
		require.Positive(t, want+1)
		for _, way := range s.ways() {
			got, err := way.energy(a)
			require.NoError(t, err, way.name)
			// The values are multiples of 1/8, so that sums in any order are exact.
			require.Equal(t, want, got, "%s, %d elements", way.name, n)
		}
		a.Release()
	}
}

// TestWritesAreSeen: each call reads the elements that Go wrote after the previous call.
func TestWritesAreSeen(t *testing.T) {
	s := needService(t)
	a, err := s.signal(100)
	require.NoError(t, err)
	defer a.Release()
	values, err := usmarray.Slice[float64](a)
	require.NoError(t, err)
	for _, way := range s.ways() {
		clear(values)
		values[3] = 5
		got, err := way.energy(a)
		require.NoError(t, err)
		require.Equal(t, 25.0, got, way.name)
		values[3] = 6
		got, err = way.energy(a)
		require.NoError(t, err)
		require.Equal(t, 36.0, got, way.name)
	}
}

func TestReport(t *testing.T) {
	s := needService(t)
	var out strings.Builder
	require.NoError(t, s.report(&out, 1000))
	for _, way := range s.ways() {
		require.Contains(t, out.String(), way.name)
	}
}

func BenchmarkWays(b *testing.B) {
	s := needService(b)
	a, err := s.signal(1_000_000)
	require.NoError(b, err)
	defer a.Release()
	for _, way := range s.ways() {
		b.Run(strings.ReplaceAll(way.name, " ", "_"), func(b *testing.B) {
			b.SetBytes(8_000_000)
			for b.Loop() {
				if _, err := way.energy(a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
