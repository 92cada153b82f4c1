package segment

import "strconv"

// Audience says what other processes may do with a segment that they map. It is
// fixed when the segment is made, and kept by seals of the kernel.
type Audience uint8

const (
	// PeersWrite lets whoever has the descriptor read and write. Nobody can change
	// the size (F_SEAL_SHRINK, F_SEAL_GROW) or the seals (F_SEAL_SEAL).
	PeersWrite Audience = iota + 1
	// PeersRead lets others read alone (F_SEAL_FUTURE_WRITE besides, Linux 5.1). The
	// mapping of the process that made the segment stays writable; a peer that tries
	// to write hits itself alone.
	PeersRead
)

// String gives "peers write" or "peers read".
func (a Audience) String() string {
	switch a {
	case PeersWrite:
		return "peers write"
	case PeersRead:
		return "peers read"
	}
	return "Audience(" + strconv.Itoa(int(a)) + ")"
}

// check refuses what is no audience; the zero value is none, so that nobody shares
// more than was said.
func (a Audience) check(op string) error {
	if a == PeersWrite || a == PeersRead {
		return nil
	}
	return opError(op, ErrAudience, "%v is no audience; PeersWrite and PeersRead are", a)
}

// seals are those that a segment of the audience has.
func (a Audience) seals() int {
	const fixed = sealSeal | sealShrink | sealGrow
	if a == PeersRead {
		return fixed | sealFutureWrite
	}
	return fixed
}

// Seals of a memory file, as <linux/fcntl.h> numbers them.
const (
	sealSeal        = 0x01
	sealShrink      = 0x02
	sealGrow        = 0x04
	sealWrite       = 0x08
	sealFutureWrite = 0x10
)
