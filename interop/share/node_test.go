//go:build linux

package share

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestClockRunsForNewLease checks that the clock keeps running if a lease begins after onTick has
// decided to stop the clock and startClock has found it running.
func TestClockRunsForNewLease(t *testing.T) {
	n := newNode(Options{Unopened: time.Hour})
	n.clock = time.AfterFunc(time.Hour, func() {}) // never fires during the test
	defer n.clock.Stop()
	for range 20 {
		n.startClock()
		last := &Peer{node: n}
		n.mu.Lock()
		n.peers[last] = struct{}{}
		n.mu.Unlock()
		last.mu.Lock() // onTick blocks at this lock
		var group sync.WaitGroup
		group.Go(n.onTick)
		time.Sleep(time.Millisecond)
		n.mu.Lock() // then here: without peers and handles, it is about to stop the clock
		delete(n.peers, last)
		last.mu.Unlock()
		time.Sleep(time.Millisecond)
		l := &lease{}
		require.NoError(t, n.leases.add("Export", l, &n.options, func(*description, place) string { return "a handle" }))
		require.True(t, n.ticks, "startClock would start the clock")
		n.mu.Unlock()
		group.Wait()
		n.mu.Lock()
		require.True(t, n.ticks, "the clock does not run for the pending handle")
		n.mu.Unlock()
		require.True(t, n.leases.revoke([]byte("a handle"), l.d.serial))
		n.onTick()
		require.False(t, n.ticks, "the clock runs without a pending handle")
	}
}

// TestClosingPeerEndsWithLocallyEndedLease checks that a closing connection also ends if its last lease
// is ended by this side, for example because pending work of an opening failed.
func TestClosingPeerEndsWithLocallyEndedLease(t *testing.T) {
	peers := make(chan *Peer, 1)
	s := testenv.Must(Listen(context.Background(), "", Options{Connected: func(p *Peer) { peers <- p }}))(t)
	p := testenv.Must(Dial(context.Background(), s.Address(), Options{}))(t)
	there := <-peers
	l := &lease{holder: there}
	require.NoError(t, s.node.leases.add("Open", l, &s.node.options, nil))
	require.NoError(t, there.Close())
	require.Equal(t, 1, there.Stats().Leases)
	require.NoError(t, there.Err(), "the lease needs the connection")
	require.Zero(t, s.node.leases.end(there, []uint64{l.d.serial}))
	select {
	case <-there.Done():
	case <-time.After(time.Minute):
		t.Fatal("the connection stays")
	}
	<-p.Done()
	require.NoError(t, s.Close())
}

// TestEnding checks that ending reports true from before the sockets of a process are closed until
// after the process has ended.
func TestEnding(t *testing.T) {
	require.False(t, ending(os.Getpid()))
	require.False(t, ending(0))
	child := exec.Command("cat")
	in := testenv.Must(child.StdinPipe())(t)
	require.NoError(t, child.Start())
	require.False(t, ending(child.Process.Pid))
	require.NoError(t, in.Close())
	require.Eventually(t, func() bool { return ending(child.Process.Pid) }, time.Minute, time.Millisecond, "ending does not report the zombie process")
	require.NoError(t, child.Wait())
	require.True(t, ending(child.Process.Pid))
}

// TestConnectionQuota checks that one process, and all processes of another user together, can use
// only a share of the connections. A connection counts until the kernel has released its socket.
func TestConnectionQuota(t *testing.T) {
	n := newNode(Options{MaxPeers: 8})
	own, other := uint32(os.Geteuid()), uint32(os.Geteuid()+1) //nolint:gosec // user ids
	process := func(pid int, uid uint32) Credentials { return Credentials{PID: pid, UID: uid} }
	for pid := 1; pid <= 2; pid++ { // the quota of a process is a quarter
		require.NoError(t, n.takePlace(process(pid, other)))
		require.NoError(t, n.takePlace(process(pid, other)))
		require.ErrorIs(t, n.takePlace(process(pid, other)), ErrLimit)
	}
	require.ErrorIs(t, n.takePlace(process(3, other)), ErrLimit, "the quota of another user is half")
	for pid := 11; pid <= 16; pid++ {
		require.NoError(t, n.takePlace(process(pid, own)))
		require.NoError(t, n.takePlace(process(pid, own)))
	}
	require.ErrorIs(t, n.takePlace(process(17, own)), ErrLimit, "the limit of all starting, open and closing connections is twice MaxPeers")
	n.leavePlace(process(1, other))
	require.NoError(t, n.takePlace(process(3, other)))
	for _, c := range []Credentials{process(1, other), process(2, other), process(2, other), process(3, other)} {
		n.leavePlace(c)
	}
	for pid := 11; pid <= 16; pid++ {
		n.leavePlace(process(pid, own))
		n.leavePlace(process(pid, own))
	}
	require.Zero(t, n.places.all)
	require.Empty(t, n.places.byProcess)
	require.Empty(t, n.places.byUser)
}
