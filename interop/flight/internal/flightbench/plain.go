package main

import (
	"io"
	"net"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// plain sends the bytes through a socket and waits for one byte. The receiver allocates from the pool.
type plain struct {
	l    net.Listener
	c    net.Conn
	data []byte
}

func newPlain(path string, a *usmarray.Array, pool memmgr.Resource) (*plain, error) {
	data, err := a.Buffer().Bytes()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() {
		c, err := l.Accept()
		for err == nil {
			err = receivePlain(c, pool, a.NBytes())
		}
	}()
	c, err := net.Dial("unix", path)
	return &plain{l, c, data[:a.NBytes()]}, err
}

func receivePlain(c net.Conn, pool memmgr.Resource, n int) error {
	b, err := memmgr.New(pool, memmgr.Request{Size: uintptr(n)})
	if err != nil {
		return err
	}
	defer b.Release()
	data, err := b.Bytes()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(c, data[:n]); err != nil {
		return err
	}
	_, err = c.Write(data[:1])
	return err
}

func (p *plain) put() error {
	if _, err := p.c.Write(p.data); err != nil {
		return err
	}
	_, err := io.ReadFull(p.c, make([]byte, 1))
	return err
}

func (p *plain) close() {
	p.c.Close()
	p.l.Close()
}
