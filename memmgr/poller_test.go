package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

var errFull error = &memmgr.OutOfMemoryError{Err: errors.New("the device is full")}

// onFullUpstream calls f in virtual time with a pool whose upstream has refused further memory.
func onFullUpstream(t *testing.T, f func(t *testing.T, u *upstream, p *memmgr.Pool)) {
	memmgr.WithoutKeeper(func() {
		synctest.Test(t, func(t *testing.T) {
			u := &upstream{Resource: new(addressOnly)}
			p := newPool(t, u, memmgr.WithSegment(1<<20), memmgr.WithDecay(0))
			held := mustNew(t, p, 1<<20)
			u.setAsk(func(memmgr.Request) error { return errFull })
			f(t, u, p)
			held.Release()
		})
	})
}

// The poller asks for other waiters only until its own context ends.
func TestPollerReturnsWhenItsContextEnds(t *testing.T) {
	onFullUpstream(t, func(t *testing.T, u *upstream, p *memmgr.Pool) {
		const deadline, answer = 100 * time.Millisecond, 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		start := time.Now()
		poller := request(p, ctx, 4<<20)
		synctest.Wait()
		others, end := context.WithCancel(t.Context())
		var waiting []chan granted
		for i := range 16 { // each asks for less than the one before, so that no refusal is that of the next
			account := testenv.Must(p.NewTenant(fmt.Sprint(i), memmgr.TenantOptions{}))(t)
			waiting = append(waiting, request(account, others, uintptr(4<<20-(i+1)<<17)))
			synctest.Wait()
		}
		u.setAsk(func(memmgr.Request) error { time.Sleep(answer); return errFull })
		require.ErrorIs(t, (<-poller).err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), deadline+answer)
		end()
		for _, x := range waiting {
			require.Error(t, (<-x).err)
		}
	})
}

// The end of the poller's context does not fail the waiter for which it asks.
func TestEndOfThePollerFailsNoOtherWaiter(t *testing.T) {
	onFullUpstream(t, func(t *testing.T, u *upstream, p *memmgr.Pool) {
		ctx, cancel := context.WithCancelCause(t.Context())
		poller := request(p, ctx, 1<<20)
		synctest.Wait()
		other := request(p, context.Background(), 1<<19)
		synctest.Wait()
		asked := make(chan struct{}, 1)
		u.setAsk(func(r memmgr.Request) error {
			if r.Context == nil || r.Context.Done() == nil {
				return errFull
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			<-r.Context.Done()
			return context.Cause(r.Context)
		})
		<-asked
		cancel(errors.New("the client has left"))
		require.Error(t, (<-poller).err)
		synctest.Wait()
		u.setAsk(func(memmgr.Request) error { return nil })
		served(t, other).Release()
	})
}

// Requests that end before a slow upstream answers do not follow each other as the poller.
func TestShortRequestsDoNotEndEveryQuestion(t *testing.T) {
	onFullUpstream(t, func(t *testing.T, u *upstream, p *memmgr.Pool) {
		const answer = 100 * time.Millisecond
		var stop atomic.Bool
		var short sync.WaitGroup
		for range 4 {
			short.Go(func() {
				for !stop.Load() {
					ctx, cancel := context.WithTimeout(t.Context(), answer*6/10)
					if b, err := memmgr.New(p, memmgr.Request{Size: 1 << 20, Context: ctx}); err == nil {
						b.Release()
					}
					cancel()
				}
			})
			time.Sleep(answer / 7)
		}
		patient := request(testenv.Must(p.NewTenant("patient", memmgr.TenantOptions{}))(t), context.Background(), 1<<20)
		synctest.Wait()
		u.setAsk(func(r memmgr.Request) error {
			if r.Context == nil {
				return nil
			}
			select {
			case <-r.Context.Done():
				return r.Context.Err()
			case <-time.After(answer):
				return nil
			}
		})
		var g granted
		select {
		case g = <-patient:
			require.NoError(t, g.err)
		case <-time.After(5 * answer):
			t.Error("no question lasted until the answer")
		}
		stop.Store(true)
		short.Wait()
		if !g.b.Valid() {
			g = <-patient
		}
		g.b.Release()
	})
}

// If the upstream panics when the poller asks, the next waiter becomes the poller.
func TestPanicOfTheUpstreamEndsOneWait(t *testing.T) {
	onFullUpstream(t, func(t *testing.T, u *upstream, p *memmgr.Pool) {
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			_, _ = memmgr.New(p, memmgr.Request{Size: 1 << 20, Context: context.Background()})
		}()
		synctest.Wait()
		other := request(testenv.Must(p.NewTenant("other", memmgr.TenantOptions{}))(t), context.Background(), 1<<19)
		synctest.Wait()
		var once sync.Once
		u.setAsk(func(memmgr.Request) error {
			once.Do(func() { panic(errFull) })
			return nil
		})
		require.Equal(t, errFull, <-panicked)
		served(t, other).Release()
		require.Zero(t, p.Stats().NumWaiting)
	})
}
