package report_test

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

// A program writes the state of a pool as a picture and a profile of its live memory, and lists its
// leaks at the end.
func Example() {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithName("images"))
	b, err := memmgr.New(pool, memmgr.Request{Size: 1 << 20, Tag: "frame"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var picture strings.Builder // a file in a real program; likewise below
	if err := report.WriteSVG(&picture, pool.Snapshot()); err != nil {
		fmt.Println(err)
	}
	if err := report.WriteProfile(io.Discard); err != nil { // for go tool pprof
		fmt.Println(err)
	}
	fmt.Println(strings.Contains(picture.String(), "frame"), report.Vars()["images"]["allocated_bytes.all.current"])

	b.Release()
	leaks, err := report.WriteLeaks(os.Stdout) // writes nothing: the memory was released
	fmt.Println(leaks, err, pool.Close())
	// Output:
	// true 1048576
	// 0 <nil> <nil>
}
