//go:build !linux

package peercred

import "net"

func credentials(*net.UnixConn) Client { return Client{Local: true} }
