package rpc

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// link is what a call can know of its connection: enough to end it.
type link struct {
	credentials.CommonAuthInfo
	conn net.Conn
}

// AuthType implements credentials.AuthInfo.
func (*link) AuthType() string { return "insecure" }

// linked are credentials that encrypt nothing and let calls see their connection.
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

// cut ends the connection of a call, with all other calls of it.
func cut(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if l, ok := p.AuthInfo.(*link); ok {
			l.conn.Close()
		}
	}
}

// share counts what each of many holds, and lets nobody have more than so much. It knows
// those alone who hold something.
type share struct {
	each int
	mu   sync.Mutex
	held map[string]int
}

func newShare(each int) *share { return &share{each: each, held: map[string]int{}} }

func (s *share) enter(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who] >= s.each {
		return false
	}
	s.held[who]++
	return true
}

func (s *share) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who]--; s.held[who] == 0 {
		delete(s.held, who)
	}
}
