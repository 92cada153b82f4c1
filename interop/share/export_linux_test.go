//go:build linux

package share

// Bounds of connections that are not admitted, and of sockets that are being released.
const (
	MaxUnadmitted = maxUnadmitted
	MaxReleasing  = maxReleasing
)

// Ending reports whether no thread of a process runs any more.
func Ending(pid int) bool { return ending(pid) }

// ActAsOlderKernel has this process not use SO_PASSRIGHTS.
func ActAsOlderKernel() { soPassRights = 1 << 20 }
