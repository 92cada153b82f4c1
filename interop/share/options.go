package share

import (
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Credentials identify the process on the other side of a socket. The kernel recorded them when that
// process connected, or when it began to listen.
type Credentials struct {
	PID      int
	UID, GID uint32
}

// String returns a text like "process 7 of user 1000, group 1000".
func (c Credentials) String() string {
	return fmt.Sprintf("process %d of user %d, group %d", c.PID, c.UID, c.GID)
}

// Options configure [Listen] and [Dial]. The zero value is for processes of one user that share host
// memory. Limits apply to each peer, and 0 is the default. A request beyond a limit fails with ErrLimit
// and does not affect other peers.
type Options struct {
	// Admit decides which processes may connect, and which may be connected to. An error
	// refuses the process, which receives its text. nil admits the processes of this process's
	// effective user. In a user namespace the kernel reports the overflow uid (65534) for every
	// user that has no id there: nil does not admit it unless the namespace has an id for every
	// user, and an Admit of your own should not either. Admit runs before anything is read from
	// the process, on several goroutines at once, 64 at most.
	Admit func(Credentials) error
	// Connected is called, on a goroutine of its own, for each process that connects to a
	// server. It can hand arrays over ([Peer.Give]) and receive them, and closes the Peer afterwards.
	// Without it a server accepts no arrays (ErrRefused); it only lends its own.
	Connected func(*Peer)
	// Queue is the queue in whose context USM of other processes is mapped. Device memory of a GPU is
	// opened there by its driver's handle, which reaches the driver as the other process sent it: admit
	// only processes that may be trusted with the device. The server or peer borrows the queue. With
	// nil, such arrays cannot be opened (ErrNotShared), except with AsHost.
	Queue *syclobj.Queue
	// AsHost opens USM of other processes as plain host memory if there is no Queue. The bytes are the
	// same, because all segments are memory files.
	AsHost bool

	// CopyInto is the resource into which arrays are copied that no other process can map: memory outside
	// of segments, memory of another process that cannot be asked for a handle ([Peer.Give],
	// [Server.Publish]), and a driver's memory whose maker has ended. Such arrays are sent by value, as
	// they were when they were exported, handed over or published; later writes of one side are not
	// visible to the other. The resource allocates memory of package segment, for example a pool above
	// it. The server or peer borrows it. With nil, such arrays are refused (ErrNotShared).
	CopyInto memmgr.Resource

	// Unopened is the lifetime of a handle that is not opened; 30 s.
	Unopened time.Duration
	// Idle is how long a segment of another process stays mapped after its last array was released, so
	// that the next array in it needs no mapping; 10 s. See [Peer.Trim].
	Idle time.Duration

	// MaxPeers bounds the connections of a server; 256. One process has a quarter of them at
	// most, and the processes of a user other than the server's have half. Both count a
	// connection from the admission of its process, before any greeting, until the kernel has
	// released its socket. Processes of other PID namespaces, which have no number here, count
	// as one process.
	MaxPeers    int
	MaxUnopened int // handles of this process that are not opened, in total; 65,536. Other processes together may pass on half of them, and each one a 16th
	MaxLeases   int // arrays of this process that a peer holds, and of a peer that this process holds; 65,536
	MaxSegments int // segments of this process that a peer knows, each a descriptor there, and the reverse; 1,024
	MaxGiven    int // arrays that a peer handed over and that were not received ([Peer.Receive]); 1,024
	MaxNames    int // arrays that a server publishes, and names that Peer.Names lists; 4,096
	MaxQueued   int // bytes that wait for a peer that does not read; 1 MiB. Beyond it the peer is disconnected
}

func (o Options) filled() Options {
	for _, n := range []struct {
		value    *int
		default_ int
	}{
		{&o.MaxPeers, 256},
		{&o.MaxUnopened, 65536},
		{&o.MaxLeases, 65536},
		{&o.MaxSegments, 1024},
		{&o.MaxGiven, 1024},
		{&o.MaxNames, 4096},
		{&o.MaxQueued, 1 << 20},
	} {
		if *n.value <= 0 {
			*n.value = n.default_
		}
	}
	if o.Unopened <= 0 {
		o.Unopened = 30 * time.Second
	}
	if o.Idle <= 0 {
		o.Idle = 10 * time.Second
	}
	return o
}

// admits returns an error if a process may not be on the other side.
func (o *Options) admits(c Credentials) error {
	if o.Admit != nil {
		if err := o.Admit(c); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		return nil
	}
	if err := userid.CheckOwn(c.UID); err != nil {
		return fmt.Errorf("%s: %w; Options.Admit can admit others", c, err)
	}
	return nil
}

// ExportOptions are options of [Server.Export] and [Peer.Give].
type ExportOptions struct {
	// NoWait makes the handle immediately, even if work is pending on the array. Opening then waits for
	// the work, instead of exporting. [Peer.Give] always waits.
	NoWait bool
	// To is the only process that may open the handle. The handle ends with that process.
	To *Peer
	// PID is the ID of the process that will open the handle, if it is known: then opening needs no
	// message also if several processes open arrays of the segment in turn. Other processes may open
	// the handle too.
	PID int
}

// Stats are current counts.
type Stats struct {
	Peers       int    // processes connected
	Unopened    int    // handles that are not opened yet
	Leases      int    // arrays of this process that other processes hold
	Opened      int    // arrays of other processes that this process holds
	Mapped      int    // segments of other processes that are mapped here
	MappedBytes uint64 // and their bytes
	Known       int    // segments of this process whose descriptors other processes have
	Waiting     int    // calls of Peer.WaitNewer of other processes that wait here
}
