package main

import (
	"encoding/binary"
	"io"
	"net"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// plain sends a length and the bytes, and waits for one byte. The receiver allocates from the pool.
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
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for receivePlain(c, pool) == nil {
				}
			}()
		}
	}()
	c, err := net.Dial("unix", path)
	return &plain{l, c, data[:a.NBytes()]}, err
}

func receivePlain(c net.Conn, pool memmgr.Resource) error {
	var n [8]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return err
	}
	b, err := memmgr.New(pool, memmgr.Request{Size: uintptr(binary.LittleEndian.Uint64(n[:]))})
	if err != nil {
		return err
	}
	defer b.Release()
	data, err := b.Bytes()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(c, data[:binary.LittleEndian.Uint64(n[:])]); err != nil {
		return err
	}
	_, err = c.Write(n[:1])
	return err
}

func (p *plain) put() error {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(p.data)))
	if _, err := p.c.Write(n[:]); err != nil {
		return err
	}
	if _, err := p.c.Write(p.data); err != nil {
		return err
	}
	_, err := io.ReadFull(p.c, n[:1])
	return err
}

func (p *plain) close() {
	p.c.Close()
	p.l.Close()
}
