package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// certificate is the server's certificate, which is read again when one of its files has changed. If it then
// cannot be read, new connections get the former one.
type certificate struct {
	files  [2]string // certificate and key
	stderr io.Writer // for errors

	mu   sync.Mutex
	read [2]fs.FileInfo // the files before they were read; nil if missing
	pair *tls.Certificate
}

// get is the GetCertificate of tls.Config, called for each connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]fs.FileInfo
	changed := c.pair == nil
	for i, f := range c.files {
		now[i], _ = os.Stat(f) // LoadX509KeyPair returns the error
		changed = changed || !same(now[i], c.read[i])
	}
	if !changed {
		return c.pair, nil
	}
	c.read = now
	pair, err := tls.LoadX509KeyPair(c.files[0], c.files[1])
	switch {
	case err == nil:
		c.pair = &pair
	case c.pair == nil:
		return nil, err
	default:
		fmt.Fprintf(c.stderr, "usmflight: new connections get the former certificate: %v; check -tls-cert and -tls-key\n", err)
	}
	return c.pair, nil
}

// same reports whether a file is unchanged.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
