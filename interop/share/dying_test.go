//go:build linux

package share_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

func init() {
	if os.Getenv(roleEnv) == "leaderless" {
		runtime.LockOSThread() // keeps main on the leader of the threads
	}
	roles["leaderless"] = roleLeaderless
}

// roleLeaderless ends the first thread of the process, like pthread_exit in main. The process stays
// alive.
func roleLeaderless(string) error {
	_, _, errno := syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	return errno
}

// delayEnd kills a process such that its sockets are released but its exit is not complete until
// complete is called. It traces one thread of the process, and the kernel keeps this thread until
// the tracer has waited for it. The caller must be locked to its OS thread.
func delayEnd(t *testing.T, o *other) (complete func()) {
	t.Helper()
	const ptraceSeize = 0x4206
	pid := o.cmd.Process.Pid
	threads := testenv.Must(os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task"))(t)
	tid := 0
	for _, thread := range threads {
		var err error
		if tid, err = strconv.Atoi(thread.Name()); err == nil && tid != pid {
			break
		}
	}
	require.NotEqual(t, pid, tid, "the process has one thread")
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(tid), 0, 0, 0, 0); errno != 0 {
		t.Skipf("the system does not allow tracing: %v", errno)
	}
	require.NoError(t, o.cmd.Process.Kill())
	completed := false
	complete = func() {
		if completed {
			return
		}
		completed = true
		for {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(tid, &status, syscall.WALL, nil)
			if err == nil && status.Stopped() || errors.Is(err, syscall.EINTR) { // a signal that was delivered before SIGKILL
				continue
			}
			require.NoError(t, err)
			break
		}
		o.kill()
	}
	t.Cleanup(complete)
	return complete
}

// TestPassedOnAfterALongExit checks that arrays of a maker with a slow exit can be passed on once
// the exit is complete. The exit of a process with much memory can take longer than this package
// waits after the socket was closed.
func TestPassedOnAfterALongExit(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := background(t)
	holder, last := listen(t, share.Options{}), listen(t, share.Options{})
	before := descriptors(t)
	maker := startMaker(t, "")
	a := testenv.Held(holder.Open(ctx, from(t, maker)))(t)
	p := holder.Peers()[0]
	complete := delayEnd(t, maker)
	<-p.Done()
	require.ErrorIs(t, p.Err(), share.ErrClosed)
	require.NotErrorIs(t, p.Err(), share.ErrDied)
	_, err := holder.Export(ctx, a, share.ExportOptions{})
	require.ErrorIs(t, err, share.ErrClosed)
	require.ErrorIs(t, holder.Publish(ctx, "a", a), share.ErrNotShared)

	complete()
	var h share.Handle
	eventually(t, func() bool {
		h, err = holder.Export(ctx, a, share.ExportOptions{})
		return err == nil
	}, "the array of an ended maker is not passed on")
	require.ErrorIs(t, p.Err(), share.ErrDied)
	b := testenv.Must(last.Open(ctx, h))(t)
	require.NoError(t, b.Fill(float32(7)))
	require.Equal(t, []float32{7, 7, 7, 7, 7, 7}, values(t, a))
	b.Release()
	a.Release()
	require.NoError(t, last.Close())
	require.NoError(t, holder.Close())
	eventually(t, func() bool { return descriptors(t) < before }, "descriptors stay")
}

// TestExitingMakerIsForgotten checks that an exiting process is watched only while an array of it
// is open, and that Close does not wait for the exit.
func TestExitingMakerIsForgotten(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	holder := listen(t, share.Options{})
	maker := startMaker(t, "")
	before := descriptors(t)
	a := testenv.Must(holder.Open(background(t), from(t, maker)))(t)
	p := holder.Peers()[0]
	complete := delayEnd(t, maker)
	<-p.Done()
	require.NoError(t, holder.Close())
	a.Release()
	eventually(t, func() bool { return descriptors(t) < before }, "descriptors stay")
	complete()
	require.NotErrorIs(t, p.Err(), share.ErrDied)
}

// TestProcessWithoutFirstThreadIsNotEnding checks that a process whose first thread has ended
// counts as alive while other threads run.
func TestProcessWithoutFirstThreadIsNotEnding(t *testing.T) {
	o := start(t, "leaderless", "")
	pid := o.cmd.Process.Pid
	eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") Z ")
	}, "the first thread does not end")
	require.False(t, share.Ending(pid))
	o.kill()
	require.True(t, share.Ending(pid))
}
