//go:build !linux

package flight

import "net"

func accepted(c net.Conn, release func()) net.Conn { return &counted{Conn: c, release: release} }
