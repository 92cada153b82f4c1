package segment

import "strconv"

// Audience is the access that other processes have to a segment. It is fixed when the segment is
// made. The kernel enforces it by seals.
type Audience uint8

const (
	// PeersWrite lets every process that has the descriptor read and write. No process can
	// change the size (F_SEAL_SHRINK, F_SEAL_GROW) or the seals (F_SEAL_SEAL).
	PeersWrite Audience = iota + 1
	// PeersRead lets other processes only read (F_SEAL_FUTURE_WRITE in addition, Linux 5.1). The
	// mapping of the process that made the segment stays writable. A write by a peer faults in
	// the peer.
	PeersRead
)

// String returns "peers write" or "peers read".
func (a Audience) String() string {
	switch a {
	case PeersWrite:
		return "peers write"
	case PeersRead:
		return "peers read"
	}
	return "Audience(" + strconv.Itoa(int(a)) + ")"
}

// check refuses invalid audiences. The zero value is invalid, so that write access is always
// explicit.
func (a Audience) check(op string) error {
	if a == PeersWrite || a == PeersRead {
		return nil
	}
	return opError(op, ErrAudience, "invalid audience %v; use PeersWrite or PeersRead", a)
}

// seals returns the seals of a segment for the audience.
func (a Audience) seals() int {
	const fixed = sealSeal | sealShrink | sealGrow
	if a == PeersRead {
		return fixed | sealFutureWrite
	}
	return fixed
}

// Seals of a memory file (<linux/fcntl.h>).
const (
	sealSeal        = 0x01
	sealShrink      = 0x02
	sealGrow        = 0x04
	sealWrite       = 0x08
	sealFutureWrite = 0x10
)
