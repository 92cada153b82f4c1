//go:build linux

package share_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

// maker starts a server that greets and answers each datagram with the result of says. It returns
// the address.
func maker(t *testing.T, says func(kind byte, call uint64) []byte) string {
	t.Helper()
	l := testenv.Must(net.Listen("unixpacket", abstractName()))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		b := make([]byte, 1<<14)
		reply := greetingFrame()
		for {
			if n, err := c.Read(b); err != nil || n == 0 {
				return
			}
			if reply == nil {
				reply = says(b[0], binary.LittleEndian.Uint64(b[8:]))
			}
			if _, err := c.Write(reply); err != nil {
				return
			}
			reply = nil
		}
	}()
	return l.Addr().String()
}

// listOf encodes a page of names.
func listOf(names ...string) (b []byte) {
	for _, name := range names {
		b = append(append(b, byte(len(name))), name...)
	}
	return b
}

// TestNameListingIsBounded checks that Names closes the connection if the pages are not in
// ascending order, and stops at a limit if they are.
func TestNameListingIsBounded(t *testing.T) {
	for name, says := range map[string]func(asked int) []byte{
		"the same again":  func(int) []byte { return listOf("a") },
		"falling":         func(int) []byte { return listOf("b", "a") },
		"twice":           func(int) []byte { return listOf("a", "a") },
		"an empty one":    func(int) []byte { return listOf("") },
		"back in a while": func(n int) []byte { return listOf([]string{"a", "b", "a"}[n%3]) },
		"cut off":         func(int) []byte { return listOf("a", "b")[:3] },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			p := testenv.Must(share.Dial(background(t), maker(t, func(_ byte, call uint64) []byte {
				return frameOf(10, call, says(int(asked.Add(1))-1))
			}), share.Options{}))(t)
			names, err := p.Names(background(t))
			require.ErrorIs(t, err, share.ErrProtocol)
			require.Empty(t, names)
			<-p.Done()
			require.ErrorIs(t, p.Err(), share.ErrProtocol)
		})
	}
	var asked atomic.Int32
	p := testenv.Must(share.Dial(background(t), maker(t, func(_ byte, call uint64) []byte {
		return frameOf(10, call, listOf(fmt.Sprintf("%09d", asked.Add(1))))
	}), share.Options{MaxNames: 50}))(t)
	names, err := p.Names(background(t))
	require.ErrorIs(t, err, share.ErrLimit)
	require.Empty(t, names)
	require.NoError(t, p.Err(), "the connection is closed")
	hangUp(t, p)
	require.EqualValues(t, 51, asked.Load())
}

// TestAnswersMatchCalls checks that an answer of the wrong kind, or without a pending call, closes
// the connection and fails the call.
func TestAnswersMatchCalls(t *testing.T) {
	attach := func(ctx context.Context, p *share.Peer) error { return testenv.ErrorOf(p.Attach(ctx, "a")) }
	names := func(ctx context.Context, p *share.Peer) error { return testenv.ErrorOf(p.Names(ctx)) }
	for name, c := range map[string]struct {
		ask  func(context.Context, *share.Peer) error
		kind byte
		off  uint64 // added to the number of the call
	}{
		"an unused kind":         {attach, 5, 0},
		"names for an array":     {attach, 10, 0},
		"an array for names":     {names, 8, 0},
		"refusal of no call":     {attach, 2, 7},
		"names to no such call":  {names, 10, 7},
		"an array for no call":   {attach, 8, 7},
		"a call of before":       {attach, 8, ^uint64(0)},
		"an answer of the start": {names, 2, ^uint64(0)},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			address := maker(t, func(_ byte, call uint64) []byte {
				asked.Add(1)
				return frameOf(c.kind, call+c.off, nil)
			})
			p := testenv.Must(share.Dial(background(t), address, share.Options{}))(t)
			require.ErrorIs(t, c.ask(background(t), p), share.ErrProtocol)
			<-p.Done()
			require.ErrorIs(t, p.Err(), share.ErrProtocol)
			require.EqualValues(t, 1, asked.Load())
			eventually(t, func() bool { return p.Stats() == share.Stats{Peers: 1} }, "something stays: %+v", p.Stats())
		})
	}
}
