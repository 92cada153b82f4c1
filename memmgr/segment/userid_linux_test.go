package segment_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

func init() {
	peers["mapper"] = func(t talk) {
		f := segment.Foreign{Name: t.hear(), Size: 1, ReadOnly: true, Copy: true}
		_, err := segment.MapForeign(f)
		t.say("%t %v", errors.Is(err, segment.ErrRefused), err)
		f.Owner = func(uint32) error { return nil }
		_, err = segment.MapForeign(f)
		t.say("%t %v", errors.Is(err, segment.ErrRefused), err)
	}
}

// In a user namespace the kernel reports one user id for all users that have none there. A process
// that has this id itself does not take their shared memory for its own, also with an Owner that admits all.
func TestForeignOfUsersThatAreNotMapped(t *testing.T) {
	text := testenv.Must(os.ReadFile("/proc/sys/kernel/overflowuid"))(t)
	overflow := testenv.Must(strconv.Atoi(strings.TrimSpace(string(text))))(t)
	name, _ := named(t, 1)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"=mapper")
	cmd.Stdin, cmd.Stderr = strings.NewReader(name+"\n"), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: overflow, HostID: os.Geteuid(), Size: 1}},
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("the system does not start a process in a user namespace: %v", err)
	}
	require.NoError(t, err)
	require.Regexp(t, `^true .*user namespace.*\ntrue .*user namespace`, string(out))
}
