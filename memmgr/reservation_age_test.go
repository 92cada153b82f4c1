package memmgr

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// A pool that reserves for a waiter of another pool reserves for a waiter of its own instead, once that one
// needs it and has waited longer.
func TestOldestWaiterGetsTheReservation(t *testing.T) {
	for name, age := range map[string]time.Duration{"older": time.Hour, "younger": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(NewLimit(Host(), 64<<20))
			defer func() { require.NoError(t, p.Close()) }()
			held := testenv.Must(New(p, Request{Size: 1 << 20}))(t)
			defer held.Release()
			waiting := func(size uintptr) *want {
				w := new(want)
				require.NoError(t, p.wantFor(w, &Request{Size: size, Context: context.Background()}))
				return w
			}
			foreign := newWaiter(waiting(8 << 20))
			require.NotZero(t, p.reserveForAnother(foreign, 1<<20))

			p.mu.Lock()
			defer p.mu.Unlock()
			own := p.waitlist.add(waiting(4 << 20))
			own.since, own.first = own.since.Add(-age), own.first.Add(-age)
			p.waitlist.served += 1 << 30 // to other requests meanwhile
			expected := foreign
			if age > 0 {
				expected = own
			}
			p.considerReservations()
			require.Same(t, expected, p.waitlist.reserved.of)
		})
	}
}
