//go:build linux

package share

// Limits of connections that are not admitted, and of sockets that are being released.
const (
	MaxUnadmitted = maxUnadmitted
	MaxReleasing  = maxReleasing
)

// Ending reports whether all threads of a process have ended.
func Ending(pid int) bool { return ending(pid) }

// ActAsOlderKernel makes this process behave as on a kernel without SO_PASSRIGHTS.
func ActAsOlderKernel() { soPassRights = 1 << 20 }
