package pymodule

import (
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// allocateShared takes memory that other processes can map, from the pool of its audience.
func allocateShared(q *syclobj.Queue, usm syclobj.USMKind, audience segment.Audience, bytes uintptr) (memmgr.Buffer, error) {
	const asked = "memory that other processes can map (interprocess)"
	state.mu.Lock()
	chosen := state.resource != nil
	state.mu.Unlock()
	if chosen {
		return memmgr.Buffer{}, fmt.Errorf("%s: this program gives Python's arrays memory of its own choice, which is for this process alone", asked)
	}
	if q.IsHost() {
		usm = syclobj.USMUnknown
	}
	r, err := segment.Default(q, usm, audience)
	if err != nil {
		return memmgr.Buffer{}, fmt.Errorf("%s: %w", asked, err)
	}
	return memmgr.New(r, memmgr.Request{Size: bytes, Queue: q, Tag: tag})
}
