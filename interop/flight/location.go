package flight

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// Location is an address in Arrow Flight's form.
type Location struct {
	Scheme  string // "grpc+tcp", "grpc+tls" or "grpc+unix"
	Address string // HOST:PORT, or the path of a socket
}

// ParseLocation reads grpc+tcp://HOST:PORT (grpc:// is the same), grpc+tls://HOST:PORT
// and grpc+unix:///PATH.
func ParseLocation(s string) (Location, error) {
	scheme, address, ok := strings.Cut(s, "://")
	if scheme == "grpc" {
		scheme = "grpc+tcp"
	}
	l := Location{scheme, address}
	switch {
	case !ok:
	case scheme == "grpc+unix" && strings.HasPrefix(address, "/"):
		return l, nil
	case scheme == "grpc+tcp" || scheme == "grpc+tls":
		l.Address = strings.TrimSuffix(address, "/")
		if _, _, err := net.SplitHostPort(l.Address); err == nil && !strings.Contains(l.Address, "/") {
			return l, nil
		}
	}
	return Location{}, fmt.Errorf("flight: %q is not a location; use grpc+tcp://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH", s)
}

// String writes the location as ParseLocation reads it.
func (l Location) String() string { return l.Scheme + "://" + l.Address }

// Local reports whether only processes of this machine can connect to the location: a Unix socket, a
// loopback address, or the name "localhost".
func (l Location) Local() bool {
	if l.Scheme == "grpc+unix" {
		return true
	}
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// private reports whether messages stay on this machine or are encrypted.
func (l Location) private() bool { return l.Scheme == "grpc+tls" || l.Local() }

// Listen opens the location. It replaces the file of a Unix socket without a listener, but no other file.
func (l Location) Listen() (net.Listener, error) {
	if l.Scheme != "grpc+unix" {
		return net.Listen("tcp", l.Address)
	}
	ln, err := net.Listen("unix", l.Address)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ln, err
	}
	info, serr := os.Lstat(l.Address)
	if serr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, err
	}
	if c, derr := net.Dial("unix", l.Address); derr == nil {
		c.Close()
		return nil, err
	}
	if rerr := os.Remove(l.Address); rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	return net.Listen("unix", l.Address)
}

// located returns the location of a listener, with the assigned port.
func (l Location) located(ln net.Listener) Location {
	if l.Scheme != "grpc+unix" {
		l.Address = ln.Addr().String()
	}
	return l
}
