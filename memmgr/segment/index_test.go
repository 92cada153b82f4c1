package segment

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func depth(n *node) int {
	if n == nil {
		return 0
	}
	return 1 + max(depth(n.left), depth(n.right))
}

// The index returns the same results as a sorted list, for every order of changes.
func TestIndexAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var x index
	in := map[uintptr]*record{}
	for range 20000 {
		base := uintptr(1+rng.IntN(500)) << 12
		if r := in[base]; r != nil {
			require.Same(t, r, x.remove(base, nil))
			delete(in, base)
		} else {
			r = &record{region: region{base: base, size: uintptr(1 + rng.IntN(4096))}}
			x.add(r)
			in[base] = r
		}
		address := uintptr(rng.IntN(502 << 12))
		want := in[address&^4095]
		if want != nil && address&4095 >= want.region.size {
			want = nil
		}
		require.Same(t, want, x.find(address))
		require.Nil(t, x.remove(base+1, nil))
	}
}

// A hundred thousand segments in order of address are found in a few tens of steps. A state that a reader holds does
// not change.
func TestIndexOfManySegments(t *testing.T) {
	const n = 100_000
	var x index
	records := make([]*record, n)
	for i := range records {
		records[i] = &record{region: region{base: uintptr(i+1) << 21, size: 1 << 20}}
		x.add(records[i])
	}
	require.Less(t, depth(x.root.Load()), 60) // 17 at best
	before := x.root.Load()
	rand.New(rand.NewPCG(3, 3)).Shuffle(n, func(i, j int) { records[i], records[j] = records[j], records[i] })
	for _, r := range records {
		if x.find(r.region.base+5) != r {
			t.Fatal(r.region.base)
		}
		if x.remove(r.region.base, r.of) != r {
			t.Fatal(r.region.base)
		}
	}
	require.Nil(t, x.root.Load())
	var kept []uintptr
	var walk func(*node)
	walk = func(n *node) {
		if n != nil {
			walk(n.left)
			kept = append(kept, n.base())
			walk(n.right)
		}
	}
	walk(before)
	require.Len(t, kept, n)
	require.True(t, slices.IsSorted(kept))
}
