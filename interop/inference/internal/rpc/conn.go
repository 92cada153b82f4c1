package rpc

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// link gives a call access to its connection, to close it.
type link struct {
	credentials.CommonAuthInfo
	conn net.Conn
}

// AuthType implements credentials.AuthInfo.
func (*link) AuthType() string { return "insecure" }

// linked are credentials without encryption that give calls access to their connection.
type linked struct {
	credentials.TransportCredentials
}

func linkedCredentials() credentials.TransportCredentials {
	return linked{insecure.NewCredentials()}
}

// ServerHandshake implements credentials.TransportCredentials.
func (linked) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, &link{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, conn: c}, nil
}

// Clone implements credentials.TransportCredentials.
func (l linked) Clone() credentials.TransportCredentials { return l }

// cut closes the connection of a call, with all its other calls.
func cut(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if l, ok := p.AuthInfo.(*link); ok {
			l.conn.Close()
		}
	}
}

// share counts the calls of each tenant, at most each per tenant.
type share struct {
	each int
	mu   sync.Mutex
	held map[string]int
}

func newShare(each int) *share { return &share{each: each, held: map[string]int{}} }

func (s *share) enter(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tenant] >= s.each {
		return false
	}
	s.held[tenant]++
	return true
}

func (s *share) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}
