package segment

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		require.Nil(t, x.remove(base, &Resource{}))
	}
}
