package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Server listens on a Unix socket: it publishes arrays under names, makes handles of
// arrays, and opens those of other processes. All methods may be called from any
// goroutine.
type Server struct {
	node     *node
	listener *listener
	address  string // as Dial takes it
	stop     context.CancelFunc
	stopped  context.Context

	unadmitted chan struct{} // one for each connection that is not admitted, until its socket is released

	mu     sync.Mutex
	peers  map[string]*dialled // by the maker's address
	parted map[*Peer]struct{}  // over, with arrays that nobody received yet
}

// Listen begins to serve. The address is one of
//
//	""            a random name in the abstract namespace (see [Server.Address])
//	"@name"       that name in the abstract namespace
//	"unix:/path"  a socket file, for processes in another network namespace, such as a
//	              container with that directory; while it is being made a file of that name
//	              and ".lock" lies beside it, which this user alone may open
//	anything else a path, relative or absolute: it stands for a name in the abstract
//	              namespace that is made from the absolute path and the effective user
//
// A name in the abstract namespace ends with the process and with its forked children that have not
// called exec and still have its descriptors: while one of them lives, the next Listen fails
// (EADDRINUSE). Close removes a socket file. The next Listen removes the file of a server that was
// killed, if it is a socket of this user at which no process listens. Errors: ErrAddress;
// errors.ErrUnsupported on other systems than Linux and on 386.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	const op = "Listen"
	name, file, err := socketOf(op, address)
	if err != nil {
		return nil, err
	}
	l, err := listen(ctx, name, file)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return nil, withOp(op, err)
		}
		return nil, opError(op, ErrAddress, "%q: %w", address, err)
	}
	s := &Server{
		node: newNode(o), listener: l, address: name, unadmitted: make(chan struct{}, maxUnadmitted),
		peers: map[string]*dialled{}, parted: map[*Peer]struct{}{},
	}
	if file != "" {
		s.address = fileScheme + file
	}
	s.node.maker = name
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.node.published = map[string]*published{}
	s.node.sequence = uint64(time.Now().UnixNano()) // larger than the numbers of former servers at this address
	go s.accept()
	return s, nil
}

// Address returns the address of the server, as [Dial] takes it in any process.
func (s *Server) Address() string { return s.address }

// maxUnadmitted bounds the connections of a server whose processes are not admitted, those that
// were refused included until their sockets are released. On kernels without SO_PASSRIGHTS each of
// them can occupy a thread for as long as its process wants.
const maxUnadmitted = 64

// accept takes connections until the server is closed.
func (s *Server) accept() {
	for {
		select {
		case s.unadmitted <- struct{}{}:
		case <-s.stopped.Done():
			return
		}
		c, err := s.listener.Accept()
		switch {
		case err == nil:
			conn, _ := c.(*net.UnixConn)
			go s.welcome(conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		<-s.unadmitted
		select { // no descriptor or memory is left for the moment
		case <-s.stopped.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// greeting is the maximum time for the greeting of a process.
const greeting = 10 * time.Second

// welcome admits a process and serves it.
func (s *Server) welcome(conn *net.UnixConn) {
	p, err := s.admit(conn)
	if err != nil {
		return
	}
	s.node.startClock()
	if f := s.node.options.Connected; f != nil {
		go f(p)
	}
	p.read()
	s.part(p)
}

// part keeps a connection that has ended but has arrays that were not received, for Close to release.
func (s *Server) part(p *Peer) {
	s.mu.Lock()
	for old := range s.parted {
		if !old.hasGifts() {
			delete(s.parted, old)
		}
	}
	closed := s.stopped.Err() != nil
	if !closed && p.hasGifts() {
		s.parted[p] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		_ = p.Close() // never fails
	}
}

// admit decides whether the process that connected is served, and exchanges greetings with it.
// It has a place from its admission on, and is a peer from its greeting on: until then it cannot
// send descriptors.
func (s *Server) admit(conn *net.UnixConn) (*Peer, error) {
	n := s.node
	l, err := newLink(conn)
	if err != nil {
		_ = conn.Close()
		<-s.unadmitted
		return nil, err
	}
	c, err := l.credentials()
	if err == nil {
		if refusal := n.options.admits(c); refusal != nil {
			err = opError("connect", ErrRefused, "%w", refusal)
		}
	}
	if err == nil {
		err = n.takePlace(c)
	}
	if err != nil {
		return nil, turnAway(l, err, func() { <-s.unadmitted })
	}
	<-s.unadmitted
	leavePlace := func() { n.leavePlace(c) }
	w, err := l.watchPeer(c.PID)
	if err != nil {
		return nil, turnAway(l, opError("connect", ErrRefused, "%v: nothing would tell its end: %w", c, err), leavePlace)
	}
	p := newPeer(n, l, w, c, n.options.Connected != nil, func() { l.close(leavePlace) })
	if err = s.greet(conn, p); err != nil {
		refuse(l, err)
		p.fail(err)
		return nil, err
	}
	p.guard()
	return p, nil
}

// greet waits for the greeting of a process, makes it a peer, and greets it.
func (s *Server) greet(conn *net.UnixConn, p *Peer) error {
	if err := conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	stop := context.AfterFunc(s.stopped, func() { _ = conn.SetDeadline(time.Now()) })
	err := hear(p.link)
	if !stop() {
		return opError("connect", ErrClosed, "the server was closed")
	}
	if err == nil {
		err = s.node.join(p)
	}
	if err != nil {
		return err
	}
	if err = p.link.takeDescriptors(); err == nil {
		err = hello(p.link)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return err
}

// turnAway refuses a process and ends the connection.
func turnAway(l *link, err error, released func()) error {
	refuse(l, err)
	l.close(released)
	return err
}

// refuse sends the reason why a process is not served, if the socket has room for it.
func refuse(l *link, err error) {
	b := appendFrame(nil, frameRefused, 0, func(b []byte) []byte { return appendRefusal(b, err) })
	_, _ = l.send(b, nil, false)
}

func hello(l *link) error {
	sent, err := l.send(appendFrame(nil, frameHello, 0, appendHello), nil, true)
	if err == nil && !sent {
		err = errors.New("the greeting was not sent")
	}
	return err
}

// hear waits for the other side's greeting.
func hear(l *link) error {
	b := make([]byte, maxDatagram)
	n, file, missing, err := l.receive(b)
	if err != nil {
		return opError("connect", ErrClosed, "the other side did not greet: %w", err)
	}
	if file != nil {
		_ = file.Close()
	}
	if file != nil || missing {
		return opError("connect", ErrProtocol, "a descriptor came with the greeting")
	}
	f, rest, err := nextFrame(b[:n])
	switch {
	case err == nil && len(rest) != 0:
		err = errors.New("more than a greeting")
	case err == nil && f.kind == frameRefused:
		var refusal error
		if refusal, err = readRefusal(f.payload); err == nil {
			return refusal
		}
	case err == nil && f.kind != frameHello:
		err = fmt.Errorf("a frame of kind %d for a greeting", f.kind)
	case err == nil:
		err = readHello(f.payload)
	}
	if err != nil {
		return &OpError{Op: "connect", Kind: ErrProtocol, Err: err}
	}
	return nil
}

// connect dials for a node. receives reports whether the caller may receive arrays that are handed over.
func connect(ctx context.Context, op, address string, n *node, receives bool) (*Peer, error) {
	if address == "" {
		return nil, opError(op, ErrAddress, "it is empty; Server.Address tells a server's")
	}
	name, _, err := socketOf(op, address)
	if err != nil {
		return nil, err
	}
	if err := roomToDial(ctx); err != nil {
		return nil, withOp(op, err)
	}
	conn, err := dial(ctx, name)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return nil, withOp(op, err)
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, opError(op, ErrAddress, "nobody listens at %q: %w", address, err)
		}
		return nil, opError(op, ErrAddress, "%q: %w", address, err)
	}
	p, err := greet(ctx, conn, n, receives)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, withOp(op, err)
	}
	n.startClock()
	go p.read()
	return p, nil
}

// releasing counts the sockets of connections that this process dialled, while they are released.
var releasing atomic.Int64

// maxReleasing bounds them: see maxUnadmitted.
const maxReleasing = 64

// roomToDial waits a moment while too many sockets are being released.
func roomToDial(ctx context.Context) error {
	for wait := time.Millisecond; releasing.Load() >= maxReleasing; wait *= 2 {
		if wait > longestExit {
			return opError("connect", ErrLimit, "%d connections that this process dialled are over, and the kernel is still closing "+
				"the descriptors that were sent on them; dial again later", releasing.Load())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// release is close for a connection that this process dialled.
func (l *link) release() {
	releasing.Add(1)
	l.close(func() { releasing.Add(-1) })
}

// greet checks the credentials of the listening process and exchanges greetings.
func greet(ctx context.Context, conn *net.UnixConn, n *node, receives bool) (*Peer, error) {
	l, err := newLink(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	c, err := l.credentials()
	if err == nil {
		if bad := n.options.admits(c); bad != nil {
			err = opError("connect", ErrRefused, "who listens there: %w", bad)
		}
	}
	// Its end is watched from before the greeting on: a child that it forked may hold the
	// socket on which nobody will ever answer.
	var w *pidfd.Process
	if err == nil {
		w, err = l.watchPeer(c.PID)
	}
	if err != nil {
		l.release()
		return nil, err
	}
	p := newPeer(n, l, w, c, receives, l.release)
	p.address = conn.RemoteAddr().String() // the kernel's: a link to a socket file has another name
	p.guard()
	if err = l.takeDescriptors(); err == nil {
		err = hello(l)
	}
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = hear(l) // a refusal may lie there already
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err == nil {
		err = n.join(p)
	}
	if over := p.Err(); over != nil && (err == nil || errors.Is(err, net.ErrClosed)) { // the link was closed since it died
		err = over
	}
	if err != nil {
		p.fail(err)
		n.leave(p)
		return nil, err
	}
	return p, nil
}

// published is an array that every admitted process may attach.
type published struct {
	array    *usmarray.Array // a reference of the server's own
	buffer   memmgr.Buffer   // and a second, as a lease has it: it does not fall asleep
	sequence uint64          // number of the version
}

func newPublished(a *usmarray.Array) *published {
	own := a.Retain()
	return &published{array: own, buffer: own.Buffer().Retain()}
}

// release releases both references.
func (p *published) release() {
	p.array.Release()
	p.buffer.Release()
}

// Publish lets admitted processes attach an array by a name (1 to 255 bytes) as often as
// they like, from now on until Withdraw or Close. The server keeps references of its own,
// so that the memory stays, and does not fall asleep (memmgr.Pool.Sleep), until then.
// It waits for work that is pending on the array; so does each attaching, for what is
// submitted later. Each version of a name has a sequence number, for [Peer.WaitNewer]. An array that no other process can map is published as the copy that
// Options.CopyInto makes of it now, if that is set. Errors: ErrNotShared, ErrName when the name is taken or cannot be,
// ErrLimit, ErrClosed.
func (s *Server) Publish(ctx context.Context, name string, a *usmarray.Array) error {
	return s.publish(ctx, "Publish", name, a, false)
}

// Replace is Publish for a name that may be in use. The array replaces the former one for later calls of
// Attach. Processes that have attached the former one keep it.
func (s *Server) Replace(ctx context.Context, name string, a *usmarray.Array) error {
	return s.publish(ctx, "Replace", name, a, true)
}

func (s *Server) publish(ctx context.Context, op, name string, a *usmarray.Array, replace bool) error {
	if name == "" || len(name) > maxName {
		return opError(op, ErrName, "a name of %d bytes; it has 1 to %d", len(name), maxName)
	}
	l, err := newLease(ctx, op, a, ExportOptions{}) // tells whether it can be shared
	if errors.Is(err, errElsewhere) && s.node.options.CopyInto != nil {
		c, bad := s.node.copied(ctx, op, a)
		if bad != nil {
			return bad
		}
		defer c.Release()
		a = c
		l, err = newLease(ctx, op, a, ExportOptions{})
	}
	if err != nil {
		return err
	}
	defer l.release()
	p := newPublished(a)
	old, waits, err := s.node.publish(op, name, p, replace)
	if err != nil {
		p.release()
	} else if old != nil {
		old.release()
	}
	for _, w := range waits {
		_ = s.node.answer(w) // if it fails, that connection has ended
	}
	return err
}

// Withdraw ends the publication under a name. Processes that have attached the array keep it. Errors:
// ErrName.
func (s *Server) Withdraw(name string) error {
	p := s.node.withdraw(name)
	if p == nil {
		return opError("Withdraw", ErrName, "nothing is published as %q", name)
	}
	p.release()
	return nil
}

// Export makes a handle of an array: a lease, which begins now, holds the memory, and is
// consumed by the one opening of the handle. It is over when nobody opened it within
// Options.Unopened, when the server is closed, with the process that o.To names, and by
// Revoke. While it lasts the memory does not fall asleep (memmgr.Pool.Sleep).
//
// An array that was opened here, or a part of one, is passed on: its maker is asked for the
// handle and is the maker that the handle names. That takes a round trip and fails when the
// maker is not a server; o must be the zero value. If the maker's process has ended, this server
// lends the array as if it had made it. Other arrays that no other process can map go by value
// where Options.CopyInto is set.
//
// Errors: ErrNotShared for memory that lies in no segment, or sleeps, ErrLimit, ErrClosed,
// also when o.To was closed.
func (s *Server) Export(ctx context.Context, a *usmarray.Array, o ExportOptions) (Handle, error) {
	const op = "Export"
	if o.To != nil && o.To.node != s.node {
		return Handle{}, opError(op, ErrRefused, "ExportOptions.To is no process that this server is connected with")
	}
	if a != nil && a.Valid() {
		if other := openedFrom(a.Buffer()); other != nil && !other.orphaned() {
			if o.To != nil || o.NoWait {
				return Handle{}, opError(op, ErrNotShared, "ExportOptions are for memory of this process, and it is of %v", other.peer)
			}
			h, err := other.pass(ctx, op, a)
			if err == nil || !other.orphaned() {
				return h, err
			}
		}
	}
	l, err := s.node.leaseOf(ctx, op, a, o)
	if err != nil {
		return Handle{}, err
	}
	var h Handle
	err = s.node.leases.add(op, l, &s.node.options, func(d *description, at place) string {
		h = makeHandle(s.node.maker, d, at)
		return h.encoded
	})
	if err != nil {
		l.release()
		return Handle{}, err
	}
	s.node.startClock()
	return h, nil
}

// Revoke ends a handle that was not opened, and reports whether it did.
func (s *Server) Revoke(h Handle) bool {
	return s.node.leases.revoke([]byte(h.encoded), h.d.serial)
}

// dialled is a connection to another maker, or the making of one.
type dialled struct {
	ready chan struct{}
	peer  *Peer
	err   error
}

// Open opens a handle, once: the array of another process, under its lease, or, if this
// server made the handle, the same memory without one. The connection to its maker is made
// at the first handle and kept for the next. Errors: ErrStale when the lease is over,
// ErrHandle, ErrNotShared when this process cannot map the memory, ErrAddress when the maker
// is gone, ErrRefused, ErrLimit, ErrClosed.
func (s *Server) Open(ctx context.Context, h Handle) (*usmarray.Array, error) {
	const op = "Open"
	if h.encoded == "" {
		return nil, opError(op, ErrHandle, "the zero Handle names no array")
	}
	if h.maker == s.node.maker {
		return s.openOwn(ctx, h)
	}
	p, err := s.to(ctx, op, h.socketAddress())
	if err != nil {
		return nil, err
	}
	return p.Open(ctx, h)
}

// openOwn opens a handle of this process's own.
func (s *Server) openOwn(ctx context.Context, h Handle) (*usmarray.Array, error) {
	const op = "Open"
	l, err := s.node.leases.take(op, []byte(h.encoded), h.d.serial, &s.node.options)
	if err != nil {
		return nil, err
	}
	var options []usmarray.Option
	if l.d.readOnly {
		options = append(options, usmarray.ReadOnly())
	}
	if l.d.padded {
		options = append(options, usmarray.Padded())
	}
	if l.pending != nil {
		if err = l.pending.Synchronize(ctx); err != nil {
			l.release()
			return nil, withOp(op, err)
		}
		l.pending.Release()
		l.pending = nil
	}
	a, err := usmarray.FromBuffer(l.buffer, l.d.dtype, l.d.layout, options...) // takes a reference over
	if err != nil {
		l.release()
		return nil, withOp(op, err)
	}
	l.buffer.Release() // the other
	return a, nil
}

// to returns the connection to another maker. One goroutine dials, and the others wait.
func (s *Server) to(ctx context.Context, op, address string) (*Peer, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, withOp(op, err)
		}
		if s.stopped.Err() != nil {
			return nil, opError(op, ErrClosed, "the server was closed")
		}
		s.mu.Lock()
		d := s.peers[address]
		mine := d == nil
		if mine {
			if len(s.peers) >= s.node.options.MaxPeers {
				s.mu.Unlock()
				return nil, opError(op, ErrLimit, "%d makers are connected, Options.MaxPeers", s.node.options.MaxPeers)
			}
			d = &dialled{ready: make(chan struct{})}
			s.peers[address] = d
		}
		s.mu.Unlock()
		if mine {
			d.peer, d.err = connect(ctx, op, address, s.node, false)
			if d.err != nil {
				s.hangUp(address, d)
			} else {
				go func() {
					<-d.peer.done
					s.hangUp(address, d)
				}()
			}
			close(d.ready)
			return d.peer, d.err
		}
		if !isClosed(d.ready) {
			select {
			case <-d.ready:
			case <-ctx.Done():
				return nil, withOp(op, ctx.Err())
			}
		}
		if d.err == nil {
			if d.peer.usable() {
				return d.peer, nil
			}
			s.hangUp(address, d) // the maker may have begun anew there
			continue
		}
		if !errors.Is(d.err, context.Canceled) && !errors.Is(d.err, context.DeadlineExceeded) {
			return nil, d.err
		}
	}
}

// usable reports whether calls begin on the connection.
func (p *Peer) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over() == nil
}

func (s *Server) hangUp(address string, d *dialled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[address] == d {
		delete(s.peers, address)
	}
}

// Peers returns the connected processes, including those whose handles were opened.
func (s *Server) Peers() []*Peer { return s.node.allPeers() }

// Stats returns the current counts.
func (s *Server) Stats() Stats { return s.node.stats() }

// Close ends the service: it withdraws all names, ends handles that were not opened and calls of
// WaitNewer, and accepts no further calls. Memory that other processes hold stays valid until they release
// it or end, and their connections stay open until then ([Peer.Close]). Close does not wait, and may be
// called again.
func (s *Server) Close() error {
	s.stop()
	s.listener.close()
	published, waits := s.node.close()
	for _, p := range published {
		p.release()
	}
	for _, w := range waits {
		_ = w.peer.refuse(w.call, opError("WaitNewer", ErrClosed, "the server was closed")) // or that connection has ended
	}
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.parted))
	clear(s.parted)
	s.mu.Unlock()
	for _, p := range append(all, s.node.allPeers()...) {
		_ = p.Close() // never fails
	}
	return nil
}

// publish puts an array under a name. It returns the array that had the name, which the caller
// releases, and the waits for the name, which the caller answers.
func (n *node) publish(op, name string, p *published, replace bool) (old *published, waits []newerWait, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old = n.published[name]
	switch {
	case n.closed:
		return nil, nil, opError(op, ErrClosed, "the server was closed")
	case old != nil && !replace:
		return nil, nil, opError(op, ErrName, "%q is taken; withdraw it first, or replace it", name)
	case old == nil && len(n.published) >= n.options.MaxNames:
		return nil, nil, opError(op, ErrLimit, "%d names are published, Options.MaxNames", len(n.published))
	}
	n.sequence++
	p.sequence = n.sequence
	n.published[name] = p
	return old, n.dropWaits(func(w newerWait) bool { return w.name == name && w.after < p.sequence }), nil
}

func (n *node) withdraw(name string) *published {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.published[name]
	delete(n.published, name)
	return p
}

// borrow takes a reference of a published array, nil when there is none of the name. It
// never panics, whatever became of the memory: a peer's request asks for it.
func (n *node) borrow(op, name string) (a *usmarray.Array, sequence uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.published[name]
	if p == nil {
		return nil, 0, opError(op, ErrName, "nothing is published as %q", strings.ToValidUTF8(name, "?"))
	}
	if err := retainTwice(op, p.buffer); err != nil { // a release too many elsewhere ended ours
		return nil, 0, err
	}
	a = p.array.Retain()
	p.buffer.Release()
	p.buffer.Release()
	return a, p.sequence, nil
}

// attach begins a lease of a published array for a peer. With numbered, the lease has the number of
// the version.
func (n *node) attach(p *Peer, name string, numbered bool) (l *lease, pending *usmarray.Array, err error) {
	const op = "Attach"
	a, sequence, err := n.borrow(op, name)
	if err != nil {
		return nil, nil, err
	}
	defer a.Release()
	if l, err = newLease(context.Background(), op, a, ExportOptions{To: p, NoWait: true}); err != nil {
		return nil, nil, err
	}
	if numbered {
		l.sequence = sequence
	}
	if pending, l.pending = l.pending, nil; !l.buffer.Pending() && !isSeen(l.buffer) {
		pending.Release()
		pending = nil
	}
	if err := n.leases.add(op, l, &n.options, nil); err != nil {
		if pending != nil {
			pending.Release()
		}
		l.release()
		return nil, nil, err
	}
	return l, pending, nil
}

// namesAfter lists published names in order, those behind one.
func (n *node) namesAfter(last string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.published))
	for name := range n.published {
		if name > last {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// close ends what begins. It returns the published arrays, which the caller releases, and all waits,
// which the caller refuses.
func (n *node) close() (all []*published, waits []newerWait) {
	n.leases.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for name, p := range n.published {
		all = append(all, p)
		delete(n.published, name)
	}
	return all, n.dropWaits(func(newerWait) bool { return true })
}
