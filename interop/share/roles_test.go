//go:build linux

package share_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// roles are the programs of second processes, by name.
var roles = map[string]func(address string) error{
	"attach": roleAttach,
	"forker": roleForker,
	"random": roleRandom,
	"serve":  roleServe,
	"write":  roleWrite,
	"holder": roleHolder,
	"locker": roleLocker,
	"wait":   roleWait,
}

// roleWait waits for a name that is not published.
func roleWait(address string) error {
	p, err := share.Dial(context.Background(), address, share.Options{})
	if err == nil {
		_, _, err = p.WaitNewer(context.Background(), "frame", 0)
	}
	return err
}

// check ends the process with an error, as if the role had returned it.
func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// stdin reads the lines that the first process sends.
var stdin = bufio.NewScanner(os.Stdin)

// nextLine waits for the next line of the first process. It returns false at the end of the input.
func nextLine() bool { return stdin.Scan() }

// roleAttach opens "a" and prints its description and values. On the next line of input it adds 1
// to every element if the array is writable, and prints "done". On another line it releases the
// array.
func roleAttach(address string) error {
	ctx := context.Background()
	p := must(share.Dial(ctx, address, share.Options{}))
	a := must(p.Attach(ctx, "a"))
	v := must(usmarray.ToSlice[float32](a))
	fmt.Println(a.Layout(), a.ReadOnly(), v)
	if nextLine() {
		if !a.ReadOnly() {
			for i := range v {
				v[i]++
			}
			check(usmarray.CopyFromSlice(a, v))
		}
		fmt.Println("done")
		nextLine()
	}
	a.Release()
	fmt.Println("released")
	nextLine()
	_ = p.Close()
	<-p.Done()
	for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) { // see nothingMapped
		n, err := mappings()
		if n == 0 || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d mappings stay", n)
		}
	}
}

// roleForker opens "a", starts a child that inherits all its descriptors including its socket,
// prints the child's process ID, and waits to be killed.
func roleForker(address string) error {
	ctx := context.Background()
	p := must(share.Dial(ctx, address, share.Options{}))
	check(testenv.ErrorOf(p.Attach(ctx, "a")))
	child := exec.Command("sleep", "300") // longer than the test waits
	for _, e := range must(os.ReadDir("/proc/self/fd")) {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			var fd int
			check(testenv.ErrorOf(fmt.Sscan(e.Name(), &fd)))
			child.ExtraFiles = append(child.ExtraFiles, os.NewFile(uintptr(fd), to))
		}
	}
	if len(child.ExtraFiles) == 0 {
		return errors.New("no socket was found")
	}
	check(child.Start())
	fmt.Println(child.Process.Pid)
	select {}
}

// roleRandom attaches, waits for, keeps and releases arrays at random until it is killed.
func roleRandom(address string) error {
	ctx := context.Background()
	p := must(share.Dial(ctx, address, share.Options{Idle: 5 * time.Millisecond}))
	fmt.Println("ready")
	var kept []*usmarray.Array
	for {
		var a *usmarray.Array
		var err error
		switch rand.IntN(4) {
		case 0, 1:
			a, err = p.Attach(ctx, "a")
		case 2:
			a, _, err = p.WaitNewer(ctx, "a", 0)
		case 3:
			soonest, cancel := context.WithTimeout(ctx, time.Millisecond)
			_, _, err = p.WaitNewer(soonest, "b", 0)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				continue
			}
		}
		check(err)
		if kept = append(kept, a); len(kept) > 8 {
			for _, k := range rand.Perm(len(kept))[:1+rand.IntN(4)] {
				kept[k].Release()
			}
			kept = slices.DeleteFunc(kept, func(a *usmarray.Array) bool { return !a.Valid() })
		}
	}
}

// roleServe publishes "a" with the values 0 to 5 in memory of the given audience, prints its address, and prints
// a new handle of the array for each line of input.
func roleServe(audience string) error {
	ctx := context.Background()
	a := segment.PeersWrite
	if audience == forReading {
		a = segment.PeersRead
	}
	r := must(segment.NewHost(a))
	s := must(share.Listen(ctx, "", share.Options{}))
	x := must(usmarray.FromSlice(memmgr.NewPool(r), []float32{0, 1, 2, 3, 4, 5}, []int{2, 3}))
	check(s.Publish(ctx, "a", x))
	fmt.Println(s.Address())
	for nextLine() {
		h := must(s.Export(ctx, x, share.ExportOptions{}))
		fmt.Printf("%x\n", h.Bytes())
	}
	return nil
}

// roleWrite opens "a", writes to it regardless of its read-only flag, and prints whether that
// faulted.
func roleWrite(address string) error {
	ctx := context.Background()
	p := must(share.Dial(ctx, address, share.Options{}))
	a := must(p.Attach(ctx, "a"))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fmt.Println("fault:", recover() != nil) }()
	*(*float32)(a.Pointer()) = 42
	return nil
}

// roleHolder listens and starts a child that inherits the socket. The child outlives this process
// until their common standard input is closed.
func roleHolder(string) error {
	l := must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: abstractName(), Net: "unixpacket"}))
	f := must(l.File())
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{f}
	check(child.Start())
	fmt.Println(l.Addr())
	time.Sleep(time.Hour) // until it is killed
	return nil
}

// roleLocker locks the file or directory at path until its input is closed.
func roleLocker(path string) error {
	fd := must(syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0))
	check(syscall.Flock(fd, syscall.LOCK_EX))
	fmt.Println("locked")
	nextLine()
	return nil
}
