// Package notify tells a service manager how the service is, by the protocol of systemd's
// sd_notify: a datagram to the socket that NOTIFY_SOCKET names. Where there is none it does
// nothing.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Manager is who is told. The zero value is nobody.
type Manager struct {
	socket string
	period time.Duration // within which it wants to hear of us; 0: it does not
}

// FromEnv finds the manager, and takes its variables out of the environment, so that processes
// that are started from here do not speak for us.
func FromEnv() (Manager, error) {
	m := Manager{socket: os.Getenv("NOTIFY_SOCKET")}
	period, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return Manager{}, err
		}
	}
	if m.socket != "" && m.socket[0] != '/' && m.socket[0] != '@' {
		return Manager{}, fmt.Errorf("NOTIFY_SOCKET is %q: want a path, or a name with an @ before it", m.socket)
	}
	if period == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return m, nil
	}
	n, err := strconv.ParseUint(period, 10, 62)
	if err != nil || n == 0 {
		return Manager{}, fmt.Errorf("WATCHDOG_USEC is %q: want a number of microseconds", period)
	}
	if n < 1<<62/1000 {
		m.period = time.Duration(n) * time.Microsecond
	}
	return m, nil
}

// Ready tells that requests are served.
func (m Manager) Ready() error { return m.tell("READY=1") }

// Stopping tells that the service drains.
func (m Manager) Stopping() error { return m.tell("STOPPING=1") }

// Status tells a line for people.
func (m Manager) Status(line string) error {
	return m.tell("STATUS=" + strings.ReplaceAll(line, "\n", " "))
}

func (m Manager) tell(state string) error {
	if m.socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	_, err = c.Write([]byte(state))
	return errors.Join(err, c.Close())
}

// Watch tells twice in each period that the service lives, as long as live returns nil, until
// the context ends. It returns at once where nobody wants to hear.
func (m Manager) Watch(ctx context.Context, live func() error) {
	if m.socket == "" || m.period == 0 {
		return
	}
	tick := time.NewTicker(max(m.period/2, time.Millisecond))
	defer tick.Stop()
	for {
		if live() == nil {
			_ = m.tell("WATCHDOG=1") // the next time may be well
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
