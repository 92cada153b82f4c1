package pymodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// unopened is how long a handle waits for its opening: it may lie in a queue behind long
// work. share.py tells it.
const unopened = 10 * time.Minute

// sharing is this process's end of package share: servers, which are made when somebody
// needs them. There are two for handles, so that a process that is handed memory of the
// host need not load SYCL.
var sharing struct {
	mu       sync.Mutex
	plain    *share.Server // makes handles, and opens those of host memory
	usm      *share.Server // opens those of USM
	served   map[uint64]*share.Server
	last     uint64
	attached map[string]*attached
	over     bool
}

// attached is a connection to a server that somebody named. Who uses it, the one who makes it
// among them, is counted: it is closed by the last one after it was left.
type attached struct {
	ready chan struct{} // closed when peer and err are there
	peer  *share.Peer
	err   error

	users int  // under sharing.mu
	left  bool // under sharing.mu: in the table no more
}

var errSharingOver = errors.New("Python has ended here: nothing is shared any more")

// optionsFor are those of servers and connections; with USM, memory of others that is USM
// becomes USM of the OpenCL CPU device of this process, where there is one.
func optionsFor(usm bool) (share.Options, error) {
	o := share.Options{Unopened: unopened, AsHost: true}
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

// cpuQueue is a queue on the first device whose USM is memory of the process; nil where
// there is none.
func cpuQueue(rt *syclobj.Runtime) (*syclobj.Queue, error) {
	for _, d := range rt.Devices() {
		if info := d.Info(); info.Backend == syclobj.BackendOpenCL && info.Type == syclobj.TypeCPU {
			return d.DefaultQueue()
		}
	}
	return nil, nil
}

// handleServer is the server for handles; with usm the one that opens those of USM.
func handleServer(ctx context.Context, usm bool) (*share.Server, error) {
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	at := &sharing.plain
	if usm {
		at = &sharing.usm
	}
	if sharing.over {
		return nil, errSharingOver
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

// allServers lists what there is.
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

// allPeers lists the connections, and which of them somebody attached by.
func allPeers() (all []*share.Peer, named map[string]*share.Peer) {
	for _, s := range allServers() {
		all = append(all, s.Peers()...)
	}
	named = map[string]*share.Peer{}
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	for address, a := range sharing.attached {
		select {
		case <-a.ready:
			if a.err == nil && a.peer.Err() == nil {
				all = append(all, a.peer)
				named[address] = a.peer
			}
		default:
		}
	}
	return all, named
}

// exportHandle makes the handle of an array, nil of memory that nobody else can map.
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

// openHandle opens one, which may be this process's own.
func openHandle(ctx context.Context, b []byte, usm bool) (*usmarray.Array, error) {
	h, err := share.ParseHandle(b)
	if err != nil {
		return nil, err
	}
	if s := serverOf(h); s != nil {
		return s.Open(ctx, h)
	}
	s, err := handleServer(ctx, usm)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, h)
}

// endWith ends handles with a process, those that nobody has opened by then.
func endWith(pid int, handles []share.Handle) {
	p, err := pidfd.Open(pid)
	if err != nil {
		if errors.Is(err, syscall.ESRCH) {
			go endHandles(handles)
		}
		return // they end after their time
	}
	until := time.Now().Add(unopened)
	go func() {
		defer p.Close()
		if p.WaitUntil(until) == nil {
			endHandles(handles)
		}
	}()
}

// endHandles ends those that nobody opened. Those of memory of others are opened, for the once
// that they can be.
func endHandles(handles []share.Handle) {
	for _, h := range handles {
		if s := serverOf(h); s != nil {
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

// serverOf finds the server of this process that made a handle; nil for none.
func serverOf(h share.Handle) *share.Server {
	for _, s := range allServers() {
		if s.Address() == h.Maker() {
			return s
		}
	}
	return nil
}

// serve begins to listen, and numbers the server.
func serve(ctx context.Context, address string) (number uint64, at string, err error) {
	o, err := optionsFor(false) // it opens nothing
	if err != nil {
		return 0, "", err
	}
	s, err := share.Listen(ctx, address, o)
	if err != nil {
		return 0, "", err
	}
	sharing.mu.Lock()
	if sharing.over {
		sharing.mu.Unlock()
		return 0, "", errors.Join(errSharingOver, s.Close())
	}
	defer sharing.mu.Unlock()
	if sharing.served == nil {
		sharing.served = map[uint64]*share.Server{}
	}
	sharing.last++
	sharing.served[sharing.last] = s
	return sharing.last, s.Address(), nil
}

func served(number uint64) (*share.Server, error) {
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	if s := sharing.served[number]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("the server was closed: %w", share.ErrClosed)
}

// endServer closes one; it may be closed already.
func endServer(number uint64) error {
	sharing.mu.Lock()
	s := sharing.served[number]
	delete(sharing.served, number)
	sharing.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Close()
}

// connection gives the connection with a server at an address, one for all attaching, and
// whether it is new; done gives it back. It is another one than former, which is left where
// it is still in the table.
func connection(ctx context.Context, address string, former *attached) (a *attached, isNew bool, err error) {
	for {
		a, mine, err := use(address, former)
		if err != nil {
			return nil, false, err
		}
		if mine {
			var o share.Options
			if o, a.err = optionsFor(true); a.err == nil {
				a.peer, a.err = share.Dial(ctx, address, o)
			}
			close(a.ready)
			if a.err != nil {
				leave(address, a)
				done(a)
				return nil, false, a.err
			}
			return a, true, nil
		}
		select {
		case <-a.ready:
		case <-ctx.Done():
			done(a)
			return nil, false, ctx.Err()
		}
		if a.err == nil && a.peer.Err() == nil {
			return a, false, nil
		}
		leave(address, a)
		done(a)
		if a.err != nil && !errors.Is(a.err, context.DeadlineExceeded) {
			return nil, false, a.err
		}
	}
}

// use counts a user of the connection at an address, and makes one, for the caller to dial,
// where there is none.
func use(address string, former *attached) (a *attached, mine bool, err error) {
	if former != nil {
		leave(address, former)
	}
	sharing.mu.Lock()
	defer sharing.mu.Unlock()
	if sharing.over {
		return nil, false, errSharingOver
	}
	if a = sharing.attached[address]; a == nil {
		if sharing.attached == nil {
			sharing.attached = map[string]*attached{}
		}
		a, mine = &attached{ready: make(chan struct{})}, true
		sharing.attached[address] = a
	}
	a.users++
	return a, mine, nil
}

// leave ends a connection for those who attach from now on; it is there for those who use
// it, and for its arrays.
func leave(address string, a *attached) {
	sharing.mu.Lock()
	if sharing.attached[address] == a {
		delete(sharing.attached, address)
	}
	first := !a.left
	a.left = true
	unused := first && a.users == 0
	sharing.mu.Unlock()
	a.closeIf(unused)
}

// done gives a connection back.
func done(a *attached) {
	sharing.mu.Lock()
	a.users--
	unused := a.left && a.users == 0
	sharing.mu.Unlock()
	a.closeIf(unused)
}

// closeIf closes a connection that was left and that nobody uses, so that it is made.
func (a *attached) closeIf(unused bool) {
	if unused && a.err == nil {
		_ = a.peer.Close() // never fails
	}
}

// attach opens what a server publishes.
func attach(ctx context.Context, address, name string) (a *usmarray.Array, err error) {
	err = asked(ctx, address, func(p *share.Peer) error {
		a, err = p.Attach(ctx, name)
		return err
	})
	return a, err
}

func published(ctx context.Context, address string) (names []string, err error) {
	err = asked(ctx, address, func(p *share.Peer) error {
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

var errNoNames = fmt.Errorf("nothing is published: %w", share.ErrName)

// attempts is how many connections a question goes over, where servers come and go.
const attempts = 4

// asked asks a server. A server that was closed lives on for those who have its arrays, and
// knows no name; another may listen in its place by now.
func asked(ctx context.Context, address string, ask func(*share.Peer) error) error {
	var former *attached
	for i := 1; ; i++ {
		a, isNew, err := connection(ctx, address, former)
		if err != nil {
			return err
		}
		err = ask(a.peer)
		over := a.peer.Err() != nil || errors.Is(err, share.ErrName)
		done(a)
		if err == nil || i == attempts || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, share.ErrClosed) && (isNew || !over) {
			return err
		}
		former = a
	}
}

// trimTime is how long trimming waits for a process that does not answer.
const trimTime = time.Second

// trimShared unmaps memory of others in which no array is open, and ends connections that
// only were kept for the next attaching. It returns the bytes.
func trimShared() (bytes uint64) {
	memmgr.Flush() // arrays that were dropped just now
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
			_, _ = p.Names(ctx) // answered after what was asked before
		}()
	}
	wait.Wait()
	leaveUnused()
	return bytes
}

// leaveUnused ends the connections that nobody uses, and those that were lost.
func leaveUnused() {
	var unused []*attached
	sharing.mu.Lock()
	for address, a := range sharing.attached {
		if a.users > 0 || a.peer.Err() == nil && a.peer.Stats().Opened > 0 {
			continue
		}
		delete(sharing.attached, address)
		a.left = true
		unused = append(unused, a)
	}
	sharing.mu.Unlock()
	for _, a := range unused {
		a.closeIf(true)
	}
}

// sharingStats sums what servers and connections count.
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
	_, named := allPeers()
	for _, p := range named {
		add(p.Stats())
	}
	return sum
}

// stopSharing ends what begins, before Python does.
func stopSharing() {
	sharing.mu.Lock()
	sharing.over = true
	sharing.mu.Unlock()
	_, named := allPeers()
	for _, p := range named {
		_ = p.Close() // never fails
	}
	for _, s := range allServers() {
		_ = s.Close() // never fails
	}
}

// within is a context for a number of nanoseconds, less than 0: for ever.
func within(nanoseconds int64) (context.Context, context.CancelFunc) {
	if nanoseconds < 0 {
		return context.WithCancel(context.Background())
	}
	l := &limited{Context: context.Background(), until: time.Now().Add(time.Duration(nanoseconds))}
	return l, l.cancel
}

// limited is a context with a time that has a timer only once somebody waits: most calls do
// not, and winding one up wakes a thread.
type limited struct {
	context.Context // context.Background
	until           time.Time

	mu    sync.Mutex
	timed context.Context // nil until somebody waits
	end   context.CancelFunc
	ended bool
}

func (l *limited) Deadline() (time.Time, bool) { return l.until, true }

func (l *limited) waited() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.end = context.WithDeadline(l.Context, l.until)
		if l.ended {
			l.end()
		}
	}
	return l.timed
}

func (l *limited) Done() <-chan struct{} { return l.waited().Done() }

// Value is the timed one's, so that contexts that are made of this one hang on that.
func (l *limited) Value(key any) any { return l.waited().Value(key) }

func (l *limited) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timed != nil:
		return l.timed.Err()
	case l.ended:
		return context.Canceled
	case !time.Now().Before(l.until):
		return context.DeadlineExceeded
	}
	return nil
}

func (l *limited) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.end != nil {
		l.end()
	}
}
