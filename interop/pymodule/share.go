package pymodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/interop/internal/poll"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// handleTime is the lifetime of a handle that is not opened. It is long, because a handle may
// wait in a queue behind long work.
const handleTime = 10 * time.Minute

// sharing holds the servers and connections of this process. They start when they are first
// used. There are two servers for handles, so that a process that receives only host memory
// does not load SYCL.
var sharing struct {
	mu          sync.Mutex
	plain       *share.Server            // makes handles, and opens handles of host memory
	usm         *share.Server            // opens handles of USM
	served      map[uint64]*share.Server // servers of share.serve, by number
	last        uint64                   // the last number in served
	connections map[string]*connection   // connections of share.attach, by address
	closed      bool                     // set by stopSharing
}

// connection is a connection to the server at an address. Its users are counted. After it was
// retired, the last user closes it.
type connection struct {
	ready chan struct{} // closed after peer and err are set
	peer  *share.Peer
	err   error

	users   int  // guarded by sharing.mu
	retired bool // guarded by sharing.mu: it is no longer in sharing.connections
}

var errSharingClosed = errors.New("Python has ended in this process: arrays cannot be shared any more")

// optionsFor returns the options of a server or connection. With usm, USM of other processes
// is opened as USM of the OpenCL CPU device of this process, if there is one.
func optionsFor(usm bool) (share.Options, error) {
	o := share.Options{Unopened: handleTime, AsHost: true}
	if !usm {
		return o, nil
	}
	rt, err := openRuntime(false)
	if err != nil {
		return o, err
	}
	o.Queue, err = cpuQueue(rt)
	return o, err
}

// cpuQueue returns a queue of the first OpenCL CPU device, or nil. The USM of such a device
// is memory of the process.
func cpuQueue(rt *syclobj.Runtime) (*syclobj.Queue, error) {
	for _, d := range rt.Devices() {
		if info := d.Info(); info.Backend == syclobj.BackendOpenCL && info.Type == syclobj.TypeCPU {
			return d.DefaultQueue()
		}
	}
	return nil, nil
}

// handleServer returns the server for handles of host memory, or with usm that for USM.
func handleServer(ctx context.Context, usm bool) (*share.Server, error) {
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	at := &sharing.plain
	if usm {
		at = &sharing.usm
	}
	if sharing.closed {
		return nil, errSharingClosed
	}
	if *at != nil {
		return *at, nil
	}
	o, err := optionsFor(usm)
	if err != nil {
		return nil, err
	}
	*at, err = share.Listen(ctx, "", o)
	return *at, err
}

// allServers returns all servers of this process.
func allServers() []*share.Server {
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	all := make([]*share.Server, 0, len(sharing.served)+2)
	for _, s := range []*share.Server{sharing.plain, sharing.usm} {
		if s != nil {
			all = append(all, s)
		}
	}
	for _, s := range sharing.served {
		all = append(all, s)
	}
	return all
}

// allPeers returns the peers of all servers and connections, and those of the connections
// alone, by address.
func allPeers() (all []*share.Peer, attached map[string]*share.Peer) {
	for _, s := range allServers() {
		all = append(all, s.Peers()...)
	}
	attached = map[string]*share.Peer{}
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	for address, a := range sharing.connections {
		select {
		case <-a.ready:
			if a.err == nil && a.peer.Err() == nil {
				all = append(all, a.peer)
				attached[address] = a.peer
			}
		default:
		}
	}
	return all, attached
}

// exportHandle returns a new handle of an array, or nil if other processes cannot map its
// memory.
func exportHandle(ctx context.Context, a *usmarray.Array) ([]byte, error) {
	if _, ok := share.AudienceOf(a.Buffer()); !ok {
		return nil, nil
	}
	s, err := handleServer(ctx, false)
	if err != nil {
		return nil, err
	}
	h, err := s.Export(ctx, a, share.ExportOptions{})
	if err != nil {
		return nil, err
	}
	return h.Bytes(), nil
}

// openHandle opens a handle, which this process may have made itself.
func openHandle(ctx context.Context, b []byte, usm bool) (*usmarray.Array, error) {
	h, err := share.ParseHandle(b)
	if err != nil {
		return nil, err
	}
	if s := makerOf(h); s != nil {
		return s.Open(ctx, h)
	}
	s, err := handleServer(ctx, usm)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, h)
}

// revokeAfter revokes handles when the process pid ends, or after handleTime.
func revokeAfter(pid int, handles []share.Handle) {
	p, err := pidfd.Open(pid)
	if err != nil {
		if errors.Is(err, syscall.ESRCH) {
			go revoke(handles)
		}
		return // The handles expire after handleTime.
	}
	until := time.Now().Add(handleTime)
	go func() {
		defer p.Close()
		if p.WaitUntil(until) == nil {
			revoke(handles)
		}
	}()
}

// revoke ends the handles that are not opened yet. It ends a handle of another process by
// opening it, because a handle can be opened once only.
func revoke(handles []share.Handle) {
	for _, h := range handles {
		if s := makerOf(h); s != nil {
			s.Revoke(h)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), trimTime)
		if a, err := openHandle(ctx, h.Bytes(), false); err == nil {
			a.Release()
		}
		cancel()
	}
}

// makerOf returns the server of this process that made a handle, or nil.
func makerOf(h share.Handle) *share.Server {
	for _, s := range allServers() {
		if s.Address() == h.Maker() {
			return s
		}
	}
	return nil
}

// serve starts a server. It returns its number and its address. limits are those of USMB_SHARE_LIMITS.
func serve(ctx context.Context, address string, limits [5]int64) (number uint64, at string, err error) {
	o, err := optionsFor(false)
	if err != nil {
		return 0, "", err
	}
	for i, limit := range []*int{&o.MaxPeers, &o.MaxLeases, &o.MaxSegments, &o.MaxNames, &o.MaxQueued} {
		*limit = int(limits[i])
	}
	var s *share.Server
	err = poll.Do(ctx, func(ctx context.Context) error {
		s, err = share.Listen(ctx, address, o)
		return err
	})
	if err != nil {
		return 0, "", err
	}
	sharing.mu.Lock()
	if sharing.closed {
		sharing.mu.Unlock()
		return 0, "", errors.Join(errSharingClosed, s.Close())
	}
	defer sharing.mu.Unlock()
	if sharing.served == nil {
		sharing.served = map[uint64]*share.Server{}
	}
	sharing.last++
	sharing.served[sharing.last] = s
	return sharing.last, s.Address(), nil
}

// server returns the server with a number.
func server(number uint64) (*share.Server, error) {
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	if s := sharing.served[number]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("the server was closed: %w", share.ErrClosed)
}

// closeServer closes the server with a number, unless it is closed already.
func closeServer(number uint64) error {
	sharing.mu.Lock()
	s := sharing.served[number]
	delete(sharing.served, number)
	sharing.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Close()
}

// connect returns the connection to the server at an address and whether it is new. All calls
// share one connection for an address; the caller releases it. If former is not nil, it is
// retired, and connect returns another connection.
func connect(ctx context.Context, address string, former *connection) (a *connection, isNew bool, err error) {
	for {
		a, isNew, err := acquire(address, former)
		if err != nil {
			return nil, false, err
		}
		if isNew {
			var o share.Options
			if o, a.err = optionsFor(true); a.err == nil {
				a.peer, a.err = share.Dial(ctx, address, o)
			}
			close(a.ready)
			if a.err != nil {
				retire(address, a)
				release(a)
				return nil, false, a.err
			}
			return a, true, nil
		}
		if err := poll.Closed(ctx, a.ready); err != nil {
			release(a)
			return nil, false, err
		}
		if a.err == nil && a.peer.Err() == nil {
			return a, false, nil
		}
		retire(address, a)
		release(a)
		// If the dialing call timed out or was interrupted, this call dials.
		if a.err != nil && !errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, context.Canceled) {
			return nil, false, a.err
		}
	}
}

// acquire adds a user to the connection for an address. If isNew, it has added that connection,
// and the caller must dial and close ready. It retires former first.
func acquire(address string, former *connection) (a *connection, isNew bool, err error) {
	if former != nil {
		retire(address, former)
	}
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	if sharing.closed {
		return nil, false, errSharingClosed
	}
	if a = sharing.connections[address]; a == nil {
		if sharing.connections == nil {
			sharing.connections = map[string]*connection{}
		}
		a, isNew = &connection{ready: make(chan struct{})}, true
		sharing.connections[address] = a
	}
	a.users++
	return a, isNew, nil
}

// retire removes a connection from the table, so that later calls of connect do not return
// it. It stays open for its users and its arrays.
func retire(address string, a *connection) {
	sharing.mu.Lock()
	if sharing.connections[address] == a {
		delete(sharing.connections, address)
	}
	first := !a.retired
	a.retired = true
	unused := first && a.users == 0
	sharing.mu.Unlock()
	a.closeIf(unused)
}

// release removes a user of a connection.
func release(a *connection) {
	sharing.mu.Lock()
	a.users--
	unused := a.retired && a.users == 0
	sharing.mu.Unlock()
	a.closeIf(unused)
}

// closeIf closes a retired connection if it is unused. It is ready, because the caller of
// acquire that dials is a user.
func (a *connection) closeIf(unused bool) {
	if unused && a.err == nil {
		_ = a.peer.Close() // never fails
	}
}

// attach opens the array that a server publishes under a name.
func attach(ctx context.Context, address, name string) (a *usmarray.Array, err error) {
	err = query(ctx, address, func(p *share.Peer) error {
		a, err = p.Attach(ctx, name)
		return err
	})
	return a, err
}

// waitNewer opens the array that a server publishes under a name, when its number is above after. It
// returns that number.
func waitNewer(ctx context.Context, address, name string, after uint64) (a *usmarray.Array, number uint64, err error) {
	err = query(ctx, address, func(p *share.Peer) error {
		a, number, err = p.WaitNewer(ctx, name, after)
		return err
	})
	return a, number, err
}

// published returns the names that a server publishes.
func published(ctx context.Context, address string) (names []string, err error) {
	err = query(ctx, address, func(p *share.Peer) error {
		if names, err = p.Names(ctx); err == nil && len(names) == 0 {
			err = errNoNames
		}
		return err
	})
	if errors.Is(err, errNoNames) {
		err = nil
	}
	return names, err
}

// errNoNames makes query try a new connection. A closed server publishes nothing.
var errNoNames = fmt.Errorf("no array is published: %w", share.ErrName)

// query calls ask with a connection to the server at an address. A closed server keeps its
// connections for the arrays that are open, but publishes nothing, and another server may
// listen at the address. If ask fails on a connection that is lost or not new for this reason,
// query therefore tries another one.
func query(ctx context.Context, address string, ask func(*share.Peer) error) error {
	return onConnection(ctx, address, ask, func(p *share.Peer, isNew bool, err error) bool {
		stale := p.Err() != nil || errors.Is(err, share.ErrName)
		return ctx.Err() == nil && (errors.Is(err, share.ErrClosed) || !isNew && stale)
	})
}

// attempts is the number of connections that onConnection tries.
const attempts = 4

// onConnection makes a call with a connection to the server at an address. If the call fails and again returns
// true for the error, it tries another connection.
func onConnection(ctx context.Context, address string, call func(*share.Peer) error, again func(p *share.Peer, isNew bool, err error) bool) error {
	var former *connection
	for i := 1; ; i++ {
		a, isNew, err := connect(ctx, address, former)
		if err != nil {
			return err
		}
		err = call(a.peer)
		retry := err != nil && i < attempts && again(a.peer, isNew, err)
		release(a)
		if !retry {
			return err
		}
		former = a
	}
}

// trimTime bounds the wait for the answers of other processes.
const trimTime = time.Second

// trimShared unmaps memory of other processes in which no array is open, and closes unused
// connections. It returns the number of bytes unmapped.
func trimShared() (bytes uint64) {
	memmgr.Flush() // frees arrays that were just dropped
	all, _ := allPeers()
	ctx, cancel := context.WithTimeout(context.Background(), trimTime)
	defer cancel()
	var wait sync.WaitGroup
	for _, p := range all {
		n := p.Trim()
		if bytes += n; n == 0 {
			continue
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			_, _ = p.Names(ctx) // The answer comes after those to earlier requests.
		}()
	}
	wait.Wait()
	retireUnused()
	return bytes
}

// retireUnused retires and closes the connections that are lost or have no users and no open
// arrays.
func retireUnused() {
	var unused []*connection
	sharing.mu.Lock()
	for address, a := range sharing.connections {
		if a.users > 0 || a.peer.Err() == nil && a.peer.Stats().Opened > 0 {
			continue
		}
		delete(sharing.connections, address)
		a.retired = true
		unused = append(unused, a)
	}
	sharing.mu.Unlock()
	for _, a := range unused {
		a.closeIf(true)
	}
}

// sharingStats returns the sum of the counters of servers and connections.
func sharingStats() (sum share.Stats) {
	add := func(s share.Stats) {
		sum.Peers += s.Peers
		sum.Unopened += s.Unopened
		sum.Leases += s.Leases
		sum.Opened += s.Opened
		sum.Mapped += s.Mapped
		sum.MappedBytes += s.MappedBytes
		sum.Known += s.Known
	}
	for _, s := range allServers() {
		add(s.Stats())
	}
	_, attached := allPeers()
	for _, p := range attached {
		add(p.Stats())
	}
	return sum
}

// stopSharing closes servers and connections before the end of Python, and prevents new ones.
func stopSharing() {
	sharing.mu.Lock()
	sharing.closed = true
	sharing.mu.Unlock()
	_, attached := allPeers()
	for _, p := range attached {
		_ = p.Close() // never fails
	}
	for _, s := range allServers() {
		_ = s.Close() // never fails
	}
}

// withTimeout returns a context with a timeout in nanoseconds. If it is negative, there is no
// timeout.
func withTimeout(nanoseconds int64) (context.Context, context.CancelFunc) {
	if nanoseconds < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(nanoseconds))
}
