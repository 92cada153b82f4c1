package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight"
)

// newCertificate returns a certificate for 127.0.0.1 with a serial number, and its key, in PEM.
func newCertificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private := testenv.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := testenv.Must(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	b := testenv.Must(x509.MarshalPKCS8PrivateKey(private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}

// TestCertificateIsReadAgain renews the files of the certificate while the program serves. New connections get
// the new one. With a broken file they get the former one, and the error is printed once.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	files := [2]string{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	write := func(contents ...[]byte) {
		for i, b := range contents {
			require.NoError(t, os.WriteFile(files[i], b, 0o600))
		}
	}
	cert, key := newCertificate(t, 1)
	write(cert, key)
	ctx, cancel := context.WithCancel(t.Context())
	stdout, printed := io.Pipe()
	errors, logged := io.Pipe()
	lines := make(chan string, 16)
	go func() {
		for s := bufio.NewScanner(errors); s.Scan(); {
			lines <- s.Text()
		}
	}()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "grpc+tcp://127.0.0.1:0", "-tls-cert", files[0], "-tls-key", files[1], "-insecure"}, printed, logged)
	}()
	line := testenv.Must(bufio.NewReader(stdout).ReadString('\n'))(t)
	at := testenv.Must(flight.ParseLocation(strings.TrimSpace(strings.TrimPrefix(line, "listening on "))))(t)
	serial := func() int64 {
		c := testenv.Must(tls.Dial("tcp", at.Address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))(t)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())

	cert, key = newCertificate(t, 2)
	write(cert) // without its key
	require.EqualValues(t, 1, serial())
	require.Contains(t, <-lines, "new connections get the former certificate")
	require.EqualValues(t, 1, serial())
	write(cert, key)
	require.EqualValues(t, 2, serial())

	require.NoError(t, os.Remove(files[0]))
	require.EqualValues(t, 2, serial())
	require.Contains(t, <-lines, "no such file")
	cert, key = newCertificate(t, 3)
	require.NoError(t, os.Symlink(filepath.Join(dir, "new.pem"), files[0])) // WriteFile follows it
	write(cert, key)
	require.EqualValues(t, 3, serial())
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, lines)
}
