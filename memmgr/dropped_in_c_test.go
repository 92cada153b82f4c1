//go:build cgo && linux

package memmgr_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// slowQuery is the simulated device. Its first query of an event blocks until gate is closed.
type slowQuery struct {
	*memtest.Simulated
	first         sync.Once
	entered, gate chan struct{}
}

func (s *slowQuery) EventDone(event uintptr) bool {
	s.first.Do(func() {
		close(s.entered)
		<-s.gate
	})
	return s.Simulated.EventDone(event)
}

// Memory that C dropped before a call of Trim, or before a request that finds no memory, counts as
// free even if another goroutine is just freeing it.
func TestMemoryDroppedInCIsFoundWhileAnotherGoroutineFreesIt(t *testing.T) {
	for name, find := range map[string]func(*memmgr.Pool, *memmgr.Tenant) bool{
		"trim": func(p *memmgr.Pool, _ *memmgr.Tenant) bool { return p.Trim(0) != 0 },
		"pool": func(p *memmgr.Pool, _ *memmgr.Tenant) bool {
			b, err := memmgr.New(p, memmgr.Request{Size: 4 << 20})
			b.Release()
			return err == nil
		},
		"tenant": func(_ *memmgr.Pool, tenant *memmgr.Tenant) bool {
			b, err := memmgr.New(tenant, memmgr.Request{Size: 1 << 20})
			b.Release()
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim := &slowQuery{Simulated: memtest.NewSimulated(), entered: make(chan struct{}), gate: make(chan struct{})}
			p := memmgr.NewPool(sim, memmgr.WithLimit(4<<20))
			tenant := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: 1 << 20}))(t)
			b := mustNew(t, tenant, 1<<20)
			work := sim.Submit(1)
			b.Inside().SwapPending(sim.CopyEvent(work))
			end(sim.Simulated, work)
			ownertest.Drop(b.Inside())
			<-sim.entered // a goroutine is freeing the block
			found := make(chan bool, 1)
			go func() { found <- find(p, tenant) }()
			select {
			case ok := <-found: // too early: the block is not free
				found <- ok
			case <-time.After(20 * time.Millisecond): // it waits
			}
			close(sim.gate)
			require.True(t, <-found)
			require.NoError(t, p.Close())
			returned(t, sim.Simulated)
		})
	}
}
