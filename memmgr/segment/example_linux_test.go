package segment_test

import (
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// A pool shares memory with another process, which can only read it.
func Example() {
	r, err := segment.NewHost(segment.PeersRead)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	pool := memmgr.NewPool(r)
	defer pool.Close()
	b, err := memmgr.New(pool, memmgr.Request{Size: 5})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	_ = memmgr.CopyIn(b, 0, []byte("hello"))

	s, offset, _ := segment.Find(b.Address(), b.Size())
	f, err := s.File() // goes to the other process, with size, audience and offset
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	// There:
	m, err := segment.Map(segment.Attachment{File: f, Size: s.Size(), Audience: s.Audience(), ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Printf("%s\n", bytesOf(m)[offset:offset+5])
	// Output: hello
}
