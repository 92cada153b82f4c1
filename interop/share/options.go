package share

import (
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/userid"
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
	// Admit decides which processes may connect to a server, and to which servers Dial may connect. If it
	// returns an error, the process is refused and receives the text. If Admit is nil, processes of the
	// effective user of this process are admitted. In a user namespace, the kernel reports the overflow
	// uid (65534) for every user without an ID in the namespace. It is refused if Admit is nil, unless
	// the namespace has an ID for every user. Your own Admit should refuse it too. Admit is called before
	// anything is read from the process, on up to 64 goroutines at once.
	Admit func(Credentials) error
	// Connected is called for each process that connects to a server, on a new goroutine. It can name the
	// Peer in [ExportOptions].To, and closes the Peer when it is done.
	Connected func(*Peer)
	// Queue is the queue in whose context USM of other processes is mapped. If it is nil, such arrays
	// cannot be opened (ErrNotShared), except with AsHost. The server or peer borrows the queue.
	//
	// Device memory of a GPU is opened there by a handle of its driver, in multiples of 2 MiB. The driver
	// receives the handle as the other process sent it: admit only processes that may be trusted with
	// the device. Read-only arrays in such memory are not protected against writes. The driver decides
	// whether the memory outlives its maker; it cannot be passed on after that.
	Queue *syclobj.Queue
	// AsHost opens USM of other processes as plain host memory if there is no Queue. The bytes are the
	// same, because all segments are memory files.
	AsHost bool

	// Unopened is the lifetime of a handle that is not opened; 30 s.
	Unopened time.Duration
	// Idle is how long a segment of another process stays mapped after its last array was released, so
	// that the next array in it needs no mapping; 10 s. See [Peer.Trim].
	Idle time.Duration

	// MaxPeers is the maximum number of connections of a server; 256. One process can have at most a
	// quarter of them, and the processes of a user other than the server's at most half. For these two
	// limits, a connection counts from the admission of its process until the kernel has released its
	// socket. All processes of other PID namespaces together count as one process.
	MaxPeers    int
	MaxUnopened int // handles of this process that are not opened, in total; 65,536. Other processes together may pass on half of them, and each one a 16th
	MaxLeases   int // arrays of this process that a peer holds, and of a peer that this process holds; 65,536
	MaxSegments int // segments of this process that a peer knows, each a descriptor there, and the reverse; 1,024
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
		return fmt.Errorf("%s: %w; set Options.Admit to admit other processes", c, err)
	}
	return nil
}

// ExportOptions are options of [Server.Export].
type ExportOptions struct {
	// NoWait makes Export return without waiting for work that is pending on the array. Opening the handle
	// then waits for the work.
	NoWait bool
	// To is the only process that may open the handle. The handle ends with that process.
	To *Peer
	// PID is the ID of the process that will open the handle, or 0 if it is unknown. With it, opening
	// needs no message even if several processes open arrays of the segment in turn. It is only a hint:
	// other processes may open the handle too.
	PID int
}

// Stats are current counts.
type Stats struct {
	Peers       int    // processes connected
	Unopened    int    // handles that are not opened yet
	Leases      int    // arrays of this process that other processes hold
	Opened      int    // arrays of other processes that this process holds
	Mapped      int    // segments of other processes that are mapped here
	MappedBytes uint64 // total size of these segments in bytes
	Known       int    // segments of this process whose descriptors other processes have
	Waiting     int    // pending calls of Peer.WaitNewer of other processes
}
