package share

import (
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Credentials are those of a process on the other side of a socket, as the kernel noted
// them when it connected, or when it began to listen.
type Credentials struct {
	PID      int
	UID, GID uint32
}

// String gives "process 7 of user 1000, group 1000".
func (c Credentials) String() string {
	return fmt.Sprintf("process %d of user %d, group %d", c.PID, c.UID, c.GID)
}

// Options are those of [Listen] and [Dial]; the zero value is for processes of one user
// that share memory of the host. Limits hold for each peer, 0 stands for the default,
// and reaching one is ErrLimit for whoever asked, at no cost to the other peers.
type Options struct {
	// Admit decides which processes may attach, and which a connection may lead to. An error
	// refuses the process, which receives its text. nil admits the processes of this process's
	// effective user. In a user namespace the kernel reports the overflow uid (65534) for every
	// user that has no id there: nil does not admit it unless the namespace has an id for every
	// user, and an Admit of your own should not either. Admit runs before anything is read from
	// the process, on several goroutines at once, 64 at most.
	Admit func(Credentials) error
	// Connected is called, on a goroutine of its own, for each process that connects to a
	// server: for those who hand arrays over ([Peer.Give]) or are handed some, and then close
	// the Peer. Without it a server takes none (ErrRefused): it only lends its own.
	Connected func(*Peer)
	// Queue is where USM of other processes is mapped: it becomes USM of that queue's
	// context. Device memory of a GPU is opened there by its driver's handle, which goes to the
	// driver as the other process sent it: admit whoever may be trusted with the device. It is borrowed for as long as the server or peer is. nil: such arrays
	// cannot be opened here (ErrNotShared), but for AsHost.
	Queue *syclobj.Queue
	// AsHost opens USM of others as plain memory of the host where there is no Queue:
	// the same bytes, since segments lie on memory files whatever their kind.
	AsHost bool

	// CopyInto is where arrays are copied that are to be shared and that no other process can
	// map: memory that lies in no segment, memory of another process where that cannot be asked for a
	// handle ([Peer.Give], [Server.Publish]), and a driver's memory whose maker has ended. They go by value then: as they were when they were
	// exported, handed over or published, and what is written on one side is not seen on the
	// other. It gives memory of package segment, such as a pool above that, and is borrowed for
	// as long as the server or peer is. nil: such arrays are ErrNotShared.
	CopyInto memmgr.Resource

	// Unopened is how long a handle waits for its opening; 30 s.
	Unopened time.Duration
	// Idle is how long memory of others in which no array is open stays mapped, so that
	// the next array in it costs no mapping; 10 s. See [Peer.Trim].
	Idle time.Duration

	// MaxPeers bounds the connections of a server; 256. One process has a quarter of them at
	// most, and the processes of a user other than the server's have half. Both count a
	// connection from the admission of its process, before any greeting, until the kernel has
	// released its socket. Processes of other PID namespaces, which have no number here, count
	// as one process.
	MaxPeers    int
	MaxUnopened int // handles of this process that nobody opened yet, in all; 65,536. Others pass on half of them at most, and each process a 16th
	MaxLeases   int // arrays of ours that a peer holds, and of a peer's that we hold; 65,536
	MaxSegments int // segments of ours that a peer knows, each a descriptor there, and of a peer's that we know; 1,024
	MaxGiven    int // arrays that a peer handed over and nobody received ([Peer.Receive]); 1,024
	MaxNames    int // arrays that a server publishes, and of a server's that Peer.Names lists; 4,096
	MaxQueued   int // bytes that wait for a peer that does not read; 1 MiB. It is cut off above that
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

// admits asks whether a process may be on the other side.
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

// ExportOptions are those of [Server.Export] and [Peer.Give].
type ExportOptions struct {
	// NoWait makes the handle at once, while work is pending on the array; opening it
	// waits for the work instead. Without it exporting waits. [Peer.Give] always waits.
	NoWait bool
	// To is the only process that may open the handle; it is over when that process is.
	To *Peer
}

// Stats count what there is now.
type Stats struct {
	Peers       int    // processes connected
	Unopened    int    // handles that nobody opened yet
	Leases      int    // arrays of this process that others hold
	Opened      int    // arrays of others that this process holds
	Mapped      int    // segments of others that are mapped here
	MappedBytes uint64 // and their bytes
	Known       int    // segments of this process whose descriptors others were given
	Waiting     int    // calls of Peer.WaitNewer of other processes that wait here
}
