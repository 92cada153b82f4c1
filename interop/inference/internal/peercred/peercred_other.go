//go:build !linux

package peercred

import "net"

func user(net.Conn) (uid uint32, known bool) { return 0, false }
