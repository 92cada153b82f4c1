package share

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/interop/internal/poll"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Server listens on a Unix socket. It publishes arrays under names, makes handles of arrays, and opens
// handles of other processes. All methods may be called from any goroutine.
type Server struct {
	node     *node
	listener *listener
	address  string // in the form that Dial takes
	stop     context.CancelFunc
	stopped  context.Context

	unadmitted chan struct{} // counts connections for maxUnadmitted

	mu    sync.Mutex
	peers map[string]*dialled // connections to other makers, by their addresses
}

// Listen starts a server. The address is one of
//
//	""            a random name in the abstract namespace (see [Server.Address])
//	"@name"       that name in the abstract namespace
//	"unix:/path"  a socket file, for processes in another network namespace, such as a
//	              container that mounts its directory; while Listen runs, there is also a
//	              file with the suffix ".lock", which only this user may open
//	anything else a path, relative or absolute: a name in the abstract namespace that is
//	              derived from the absolute path and the effective user; no file is created
//
// A name in the abstract namespace is free again after the process has ended, and after its forked
// children that still have its descriptors have ended or called exec. Before that, the next Listen fails
// (EADDRINUSE). Close removes a socket file. If a server was killed, the next Listen at its address removes
// the file, if it is a socket of this user at which no process listens.
//
// Before Linux 6.16, processes can send descriptors before they are admitted, and can make their release
// take long. The server releases them in the background. While it releases those of 64 refused
// connections, it accepts no others, and Close can take up to a second.
//
// Errors: ErrAddress; errors.ErrUnsupported on other systems than Linux and on 386.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	const op = "Listen"
	name, file, err := socketOf(op, address)
	if err != nil {
		return nil, err
	}
	l, err := listen(ctx, name, file)
	if err != nil {
		if ended := operr.Ended(ctx); ended != nil {
			return nil, withOp(op, ended)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, withOp(op, err)
		}
		return nil, opError(op, ErrAddress, "%q: %w", address, err)
	}
	s := &Server{
		node: newNode(o), listener: l, address: name, unadmitted: make(chan struct{}, maxUnadmitted),
		peers: map[string]*dialled{},
	}
	if file != "" {
		s.address = fileScheme + file
	}
	s.node.maker = name
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.node.published = map[string]*published{}
	s.node.sequence = uint64(time.Now().UnixNano()) // larger than the numbers of earlier servers at this address
	go s.accept()
	return s, nil
}

// Address returns the address of the server. [Dial] takes it in any process.
func (s *Server) Address() string { return s.address }

// maxUnadmitted is the maximum number of connections that are not admitted yet, or that were refused and
// whose sockets are not released yet. On kernels without SO_PASSRIGHTS, the other process can make the
// release take long, and each release occupies a thread.
const maxUnadmitted = 64

// accept accepts connections until the server is closed.
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
		select { // a temporary shortage of descriptors or memory
		case <-s.stopped.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// greeting is the maximum time that a server waits for the greeting of a process.
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
}

// admit decides whether the process that connected is served, and exchanges greetings with it. The
// connection counts as a place from the admission on. It becomes a peer with the greeting; before that, the
// process cannot send descriptors.
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
		return nil, turnAway(l, opError("connect", ErrRefused, "%v: its end cannot be detected: %w", c, err), leavePlace)
	}
	p := newPeer(n, l, w, c, func() { l.close(leavePlace) })
	if err = s.greet(conn, p); err != nil {
		refuse(l, err)
		p.fail(err)
		return nil, err
	}
	p.guard()
	return p, nil
}

// greet waits for the greeting of a process, adds it to the peers, and sends the greeting of the server.
func (s *Server) greet(conn *net.UnixConn, p *Peer) error {
	if err := conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	stop := context.AfterFunc(s.stopped, func() { _ = conn.SetDeadline(time.Now()) })
	err := readGreeting(p.link)
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
		err = sendGreeting(p.link)
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

// sendGreeting sends the greeting of this process.
func sendGreeting(l *link) error {
	sent, err := l.send(appendFrame(nil, frameHello, 0, appendHello), nil, true)
	if err == nil && !sent {
		err = errors.New("the greeting was not sent")
	}
	return err
}

// readGreeting waits for the greeting of the other process, or for its refusal, which it returns as an error.
func readGreeting(l *link) error {
	b := make([]byte, maxDatagram)
	n, file, missing, err := l.receive(b)
	if err != nil {
		return opError("connect", ErrClosed, "waiting for the greeting of the other process: %w", err)
	}
	if file != nil {
		_ = file.Close()
	}
	if file != nil || missing {
		return opError("connect", ErrProtocol, "the greeting has a descriptor")
	}
	f, rest, err := nextFrame(b[:n])
	switch {
	case err == nil && len(rest) != 0:
		err = errors.New("a second frame after the greeting in the same datagram")
	case err == nil && f.kind == frameRefused:
		var refusal error
		if refusal, err = readRefusal(f.payload); err == nil {
			return refusal
		}
	case err == nil && f.kind != frameHello:
		err = fmt.Errorf("a frame of kind %d instead of the greeting", f.kind)
	case err == nil:
		err = readHello(f.payload)
	}
	if err != nil {
		return &OpError{Op: "connect", Kind: ErrProtocol, Err: err}
	}
	return nil
}

// connect dials a server for a node.
func connect(ctx context.Context, op, address string, n *node) (*Peer, error) {
	if address == "" {
		return nil, opError(op, ErrAddress, "the address is empty; Server.Address returns the address of a server")
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
		if ended := operr.Ended(ctx); ended != nil {
			return nil, withOp(op, ended)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, withOp(op, err)
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, opError(op, ErrAddress, "no process listens at %q: %w", address, err)
		}
		return nil, opError(op, ErrAddress, "%q: %w", address, err)
	}
	var p *Peer
	err = poll.Do(ctx, func(ctx context.Context) error {
		p, err = greet(ctx, conn, n)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			err = operr.Ended(ctx)
		}
		return nil, withOp(op, err)
	}
	n.startClock()
	go p.read()
	return p, nil
}

// releasing counts the connections that this process dialled and whose sockets are being released.
var releasing atomic.Int64

// maxReleasing is the maximum of releasing; see maxUnadmitted for the reason.
const maxReleasing = 64

// roomToDial waits for a short time if too many sockets are being released, and then fails with ErrLimit.
func roomToDial(ctx context.Context) error {
	for wait := time.Millisecond; releasing.Load() >= maxReleasing; wait *= 2 {
		if wait > longestExit {
			return opError("connect", ErrLimit, "%d connections that this process dialled have ended, but the kernel still closes "+
				"descriptors that were sent on them; dial again later", releasing.Load())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return operr.Ended(ctx)
		}
	}
	return nil
}

// release closes a connection that this process dialled.
func (l *link) release() {
	releasing.Add(1)
	l.close(func() { releasing.Add(-1) })
}

// greet checks the credentials of the listening process and exchanges greetings with it.
func greet(ctx context.Context, conn *net.UnixConn, n *node) (*Peer, error) {
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
			err = opError("connect", ErrRefused, "the listening process: %w", bad)
		}
	}
	// Watch the process before the greeting: if it has ended, a forked child may keep the socket open,
	// and the greeting would never be answered.
	var w *pidfd.Process
	if err == nil {
		w, err = l.watchPeer(c.PID)
	}
	if err != nil {
		l.release()
		return nil, err
	}
	p := newPeer(n, l, w, c, l.release)
	p.address = conn.RemoteAddr().String() // from the kernel, because the caller may have used a link to the socket file
	p.guard()
	if err = l.takeDescriptors(); err == nil {
		err = sendGreeting(l)
	}
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = readGreeting(l) // the reason may be a refusal that was sent before
	}
	if err == nil && !stop() {
		err = operr.Ended(ctx)
	}
	if err == nil {
		err = n.join(p)
	}
	if over := p.Err(); over != nil && (err == nil || errors.Is(err, net.ErrClosed)) { // guard has closed the link because the process ended
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
	array    *usmarray.Array
	buffer   memmgr.Buffer // of the array, which holds the reference
	sequence uint64        // number of the version
}

// Publish publishes an array under a name of 1 to 255 bytes. Admitted processes can attach it
// ([Peer.Attach]) until it is withdrawn ([Server.Withdraw]) or the server is closed. The server retains the
// array until then. The caller keeps its own reference.
//
// Publish waits for work that is pending on the array. Attach waits for work that was submitted after that.
// Each published version has a sequence number, for [Peer.WaitNewer]. Errors: ErrNotShared; ErrName if the
// name is in use or invalid; ErrLimit; ErrClosed.
func (s *Server) Publish(ctx context.Context, name string, a *usmarray.Array) error {
	return s.publish(ctx, "Publish", name, a, false)
}

// Replace publishes an array as [Server.Publish] does, also if the name is in use. Later calls of Attach
// open the new array. Processes that have attached the former array keep it.
func (s *Server) Replace(ctx context.Context, name string, a *usmarray.Array) error {
	return s.publish(ctx, "Replace", name, a, true)
}

func (s *Server) publish(ctx context.Context, op, name string, a *usmarray.Array, replace bool) error {
	if name == "" || len(name) > maxName {
		return opError(op, ErrName, "the name has %d bytes, want 1 to %d", len(name), maxName)
	}
	l, err := newLease(ctx, op, a, ExportOptions{}) // checks that the array can be shared
	if err != nil {
		return err
	}
	p := &published{buffer: l.buffer}
	if p.array, err = l.d.arrayOn(l.buffer, l.d.readOnly); err != nil {
		l.release()
		return withOp(op, err)
	}
	old, waits, err := s.node.publish(op, name, p, replace)
	if err != nil {
		p.array.Release()
	} else if old != nil {
		old.array.Release()
	}
	for _, w := range waits {
		_ = s.node.answer(w) // if it fails, that connection has ended
	}
	return err
}

// Withdraw ends the publication under a name. Processes that have attached the array keep it. Errors:
// ErrName if no array is published under the name.
func (s *Server) Withdraw(name string) error {
	p := s.node.withdraw(name)
	if p == nil {
		return opError("Withdraw", ErrName, "no array is published as %q", name)
	}
	p.array.Release()
	return nil
}

// Export makes a handle of an array. One process can open the handle once. A lease begins with Export. It
// keeps the memory allocated. If the handle is not opened, the lease ends after Options.Unopened, by [Server.Revoke], when the server is closed, or when
// the process o.To ends. If the handle is opened, the lease ends when the opened array is released. The
// caller keeps its own reference of the array.
//
// If the array, or the array that it is a part of, was opened from another process, Export asks that
// process, the maker, for the handle. This takes a round trip, and o must be the zero value. If the maker
// has ended, this server lends the array as if it had made it. While the maker is exiting, which can take seconds, and if only the connection to it has
// ended, Export fails with ErrClosed: the maker may still use the memory.
//
// Errors: ErrNotShared if the memory is outside of segments; ErrRefused if o.To belongs to
// another server; ErrLimit; ErrClosed, also if o.To was closed.
func (s *Server) Export(ctx context.Context, a *usmarray.Array, o ExportOptions) (Handle, error) {
	const op = "Export"
	if o.To != nil && o.To.node != s.node {
		return Handle{}, opError(op, ErrRefused, "ExportOptions.To is not a connection of this server")
	}
	if a != nil && a.Valid() {
		if other := openedFrom(a.Buffer()); other != nil && !other.orphaned() {
			if o.To != nil || o.NoWait {
				return Handle{}, opError(op, ErrNotShared, "the array belongs to %v, and ExportOptions are only for memory of this process; pass ExportOptions{}", other.peer)
			}
			h, err := other.pass(ctx, op, a)
			if err == nil || !other.orphaned() {
				return h, err
			}
		}
	}
	l, err := newLease(ctx, op, a, o)
	if err != nil {
		return Handle{}, err
	}
	return s.node.handleOf(op, l)
}

// Revoke makes a handle stale. It returns false, and does nothing, if the handle was opened, has expired or
// was not made by this server.
func (s *Server) Revoke(h Handle) bool {
	return s.node.leases.revoke([]byte(h.encoded), h.d.serial)
}

// dialled is a connection to another maker. peer and err are set when ready is closed.
type dialled struct {
	ready chan struct{}
	peer  *Peer
	err   error
}

// Open opens a handle, which can be done once. The caller owns a reference of the array. Until the last
// reference is released, a lease keeps the memory allocated in the maker. If this server made the handle,
// Open returns an array in the same memory, without a lease. Open connects to the maker for its first
// handle and keeps the connection for further ones. Errors: ErrStale if the lease has ended; ErrHandle;
// ErrNotShared if this process cannot map the memory; ErrAddress if the maker has ended; ErrRefused;
// ErrLimit; ErrClosed.
func (s *Server) Open(ctx context.Context, h Handle) (*usmarray.Array, error) {
	const op = "Open"
	if h.encoded == "" {
		return nil, opError(op, ErrHandle, "the zero Handle names no array")
	}
	if h.maker == s.node.maker {
		return s.openOwn(ctx, h)
	}
	p, err := s.to(ctx, op, h.Maker())
	if err != nil {
		return nil, err
	}
	return p.Open(ctx, h)
}

// openOwn opens a handle that this server made.
func (s *Server) openOwn(ctx context.Context, h Handle) (*usmarray.Array, error) {
	const op = "Open"
	l, err := s.node.leases.take(op, []byte(h.encoded), h.d.serial, &s.node.options)
	if err != nil {
		return nil, err
	}
	if l.pending != nil {
		if err = l.pending.Synchronize(ctx); err != nil {
			l.release()
			return nil, withOp(op, err)
		}
		l.pending.Release()
		l.pending = nil
	}
	a, err := l.d.arrayOn(l.buffer, l.d.readOnly)
	if err != nil {
		l.release()
		return nil, withOp(op, err)
	}
	return a, nil
}

// to returns the connection to another maker. If there is none, one goroutine dials, and further callers
// wait for it.
func (s *Server) to(ctx context.Context, op, address string) (*Peer, error) {
	for {
		if err := operr.Ended(ctx); err != nil {
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
				return nil, opError(op, ErrLimit, "%d makers are connected, the maximum; raise Options.MaxPeers", s.node.options.MaxPeers)
			}
			d = &dialled{ready: make(chan struct{})}
			s.peers[address] = d
		}
		s.mu.Unlock()
		if mine {
			d.peer, d.err = connect(ctx, op, address, s.node)
			if d.err != nil {
				s.dropDialled(address, d)
			} else {
				go func() {
					<-d.peer.done
					s.dropDialled(address, d)
				}()
			}
			close(d.ready)
			return d.peer, d.err
		}
		if err := poll.Closed(ctx, d.ready); err != nil {
			return nil, withOp(op, err)
		}
		if d.err == nil {
			if d.peer.usable() {
				return d.peer, nil
			}
			s.dropDialled(address, d) // a new server may listen there
			continue
		}
		if !errors.Is(d.err, context.Canceled) && !errors.Is(d.err, context.DeadlineExceeded) {
			return nil, d.err
		}
	}
}

// usable reports whether new calls can be made on the connection.
func (p *Peer) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over() == nil
}

// dropDialled removes a connection to another maker from the table, so that the next caller dials.
func (s *Server) dropDialled(address string, d *dialled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[address] == d {
		delete(s.peers, address)
	}
}

// Peers returns the connected processes, including the makers to which this server has connected.
func (s *Server) Peers() []*Peer { return s.node.allPeers() }

// Stats returns the current counts.
func (s *Server) Stats() Stats { return s.node.stats() }

// Close stops the server. It withdraws all names, ends unopened handles and pending calls of WaitNewer, and
// accepts no further calls. Memory that other processes hold stays valid until they release it or end, and
// their connections stay open until then ([Peer.Close]). Close does not wait for that, and may be called
// again.
func (s *Server) Close() error {
	s.stop()
	s.listener.close()
	published, waits := s.node.close()
	for _, p := range published {
		p.array.Release()
	}
	for _, w := range waits {
		_ = w.peer.refuse(w.call, opError("WaitNewer", ErrClosed, "the server was closed")) // if it fails, that connection has ended
	}
	for _, p := range s.node.allPeers() {
		_ = p.Close() // never fails
	}
	return nil
}

// publish records an array under a name. It returns the former array of the name, which the caller
// releases, and the pending calls of WaitNewer for the name, which the caller answers.
func (n *node) publish(op, name string, p *published, replace bool) (old *published, waits []newerWait, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old = n.published[name]
	switch {
	case n.closed:
		return nil, nil, opError(op, ErrClosed, "the server was closed")
	case old != nil && !replace:
		return nil, nil, opError(op, ErrName, "%q is in use; withdraw it first, or call Replace", name)
	case old == nil && len(n.published) >= n.options.MaxNames:
		return nil, nil, opError(op, ErrLimit, "%d names are published, the maximum; raise Options.MaxNames", len(n.published))
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

// borrow retains a published array. It fails, and does not panic, if the memory was released too often by
// other code: a request of a peer must not end the process.
func (n *node) borrow(op, name string) (a *usmarray.Array, sequence uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.published[name]
	if p == nil {
		return nil, 0, opError(op, ErrName, "no array is published as %q", strings.ToValidUTF8(name, "?"))
	}
	if err := retain(op, p.buffer); err != nil {
		return nil, 0, err
	}
	a = p.array.Retain()
	p.buffer.Release()
	return a, p.sequence, nil
}

// attach makes a lease of a published array for a peer. If numbered is true, the lease has the sequence
// number of the version.
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

// namesAfter returns the published names after last, in ascending order.
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

// close prevents new connections and leases, and ends unopened handles. It returns the published arrays,
// which the caller releases, and the pending calls of WaitNewer, which the caller refuses.
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
