package flight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// certificate returns a TLS certificate for 127.0.0.1 and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := testenv.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der := testenv.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	parsed := testenv.Must(x509.ParseCertificate(der))(t)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// A server with tokens refuses every call without a valid token.
func TestTokens(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Tokens = []string{"alpha", "beta"} })
	a := numbers(t, b.mine, 1000)
	for _, token := range []string{"", "alph", "alphabeta", "Bearer"} {
		c := dial(t, b.at.String(), ClientOptions{Token: token})
		for call, err := range map[string]error{
			"put": c.Put(t.Context(), "x", a), "free": c.Free(t.Context(), "x"),
			"info":  testenv.ErrorOf(c.Info(t.Context(), "x")),
			"list":  testenv.ErrorOf(c.List(t.Context(), "")),
			"stats": testenv.ErrorOf(c.Stats(t.Context())),
			"get":   testenv.ErrorOf(c.Get(t.Context(), "x", b.mine)),
		} {
			require.Equal(t, codes.Unauthenticated, status.Code(err), "%s with %q: %v", call, token, err)
			require.NotContains(t, err.Error(), "alpha")
		}
	}
	for _, token := range []string{"alpha", "beta"} {
		c := dial(t, b.at.String(), ClientOptions{Token: token})
		require.NoError(t, c.Put(t.Context(), "x", a))
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic alpha", "authorization", "bearer  beta ")
	require.NoError(t, testenv.ErrorOf(b.client.Info(ctx, "x")), "letter case and spaces of the scheme are ignored; one valid token of several is sufficient")
}

// Tokens are never sent without encryption to another machine.
func TestTokensNeedTLS(t *testing.T) {
	s := testenv.Must(NewServer(ServerOptions{Memory: newPool(t), Tokens: []string{"x"}}))(t)
	defer s.Close()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		_, _, err := s.Listen(Location{"grpc+tcp", address})
		require.ErrorIs(t, err, ErrInsecure)
	}
	l, at, err := s.Listen(Location{"grpc+tcp", "127.0.0.1:0"})
	require.NoError(t, err)
	require.NotContains(t, at.String(), ":0")
	l.Close()
	_, _, err = s.Listen(Location{"grpc+tls", "127.0.0.1:0"})
	require.ErrorContains(t, err, "certificate")
	require.ErrorIs(t, testenv.ErrorOf(Dial("grpc+tcp://192.0.2.1:1", ClientOptions{Token: "x"})), ErrInsecure)
	require.NoError(t, testenv.Must(Dial("grpc+tls://192.0.2.1:1", ClientOptions{Token: "x"}))(t).Close())

	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte("# ours\n\n one \r\ntwo\n"), 0o600))
	tokens := testenv.Must(ReadTokens(path))(t)
	require.Equal(t, []string{"one", "two"}, tokens)
	require.NoError(t, os.WriteFile(path, []byte("# none\n"), 0o600))
	require.ErrorContains(t, testenv.ErrorOf(ReadTokens(path)), "has no tokens")
	require.ErrorIs(t, testenv.ErrorOf(ReadTokens(path+"x")), os.ErrNotExist)
}

// A server with a certificate accepts only TLS connections.
func TestTLS(t *testing.T) {
	cert, roots := certificate(t)
	mine := newPool(t)
	_, at := serve(t, ServerOptions{Memory: newPool(t), Tokens: []string{"x"}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}, Location{"grpc+tcp", "127.0.0.1:0"})
	require.Equal(t, "grpc+tls", at.Scheme)
	a := numbers(t, mine, 2000, 1000)
	c := dial(t, at.String(), ClientOptions{Token: "x", TLS: &tls.Config{RootCAs: roots}})
	require.NoError(t, c.Put(t.Context(), "x", a))
	sameCopy(t, a, testenv.Must(c.Get(t.Context(), "x", mine))(t))
	for _, c := range []*Client{
		dial(t, at.String(), ClientOptions{Token: "x"}),
		dial(t, Location{"grpc+tcp", at.Address}.String(), ClientOptions{Token: "x"}),
	} {
		require.Equal(t, codes.Unavailable, status.Code(c.Put(t.Context(), "y", a)))
	}
}

// Health checks are answered without a token, and while the server has its largest number of calls. All
// other calls of the service need a token.
func TestHealth(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Tokens, o.Limits.MaxStreams = []string{"x"}, 1 })
	client := dial(t, b.at.String(), ClientOptions{Token: "x"})
	put := testenv.Must(client.rpc.DoPut(client.context(t.Context())))(t)
	require.Eventually(t, func() bool { return b.server.Stats().Streams == 1 }, time.Minute, time.Millisecond)
	_, err := dial(t, b.at.String(), ClientOptions{Token: "x"}).List(t.Context(), "") // on a connection of its own
	require.Equal(t, codes.ResourceExhausted, status.Code(err))

	health := healthpb.NewHealthClient(b.client.conn)
	answer := testenv.Must(health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "any"}))(t)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.GetStatus())
	silent := testenv.Must(b.client.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, healthpb.Health_Check_FullMethodName))(t)
	require.NoError(t, silent.RecvMsg(answer), "the request is not read")
	require.Equal(t, codes.Unimplemented, status.Code(testenv.ErrorOf(health.List(t.Context(), &healthpb.HealthListRequest{}))))
	require.NoError(t, put.CloseSend())
}

// A connection without calls is closed. A client connects again for its next call.
func TestIdleConnections(t *testing.T) {
	_, at := serve(t, ServerOptions{Memory: newPool(t), idle: 100 * time.Millisecond}, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
	c := dial(t, at.String(), ClientOptions{})
	for range 3 {
		require.NoError(t, testenv.ErrorOf(c.List(t.Context(), "")))
		untilIdle(t, c)
	}
}

// untilIdle waits until a client has lost its connection.
func untilIdle(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for state := c.conn.GetState(); state != connectivity.Idle; state = c.conn.GetState() {
		require.True(t, c.conn.WaitForStateChange(ctx, state), "the server closes it")
	}
}
