//go:build cgo

package segment_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// POSIX shared memory of another program becomes a buffer that keeps the mapping until the last release. Err reports
// whether data that was read is valid.
func ExampleMapForeign() {
	theirs, err := os.CreateTemp("/dev/shm", "example-") // another program's
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(theirs.Name())
	if _, err := theirs.WriteString("not for us, but this is"); err != nil {
		log.Fatal(err)
	}

	m, err := segment.MapForeign(segment.Foreign{Name: filepath.Base(theirs.Name()), Offset: 12, Size: 11, ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	b, err := memmgr.FromForeign(m.Data(), m.Size(), memmgr.ForeignOptions{Place: m.Place(), Release: func() { _ = m.Close() }})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	text := make([]byte, b.Size())
	if err := memmgr.CopyOut(b, 0, text); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %v\n", text, m.Err())
	// Output: but this is, <nil>
}
