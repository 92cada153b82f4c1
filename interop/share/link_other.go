//go:build !linux || 386 || s390x

package share

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
)

// Elsewhere than on Linux there are no abstract names, no pidfds and no sealed memory:
// every way in answers errors.ErrUnsupported.

var errUnsupported = fmt.Errorf("sharing memory between processes is there on Linux: %w", errors.ErrUnsupported)

type link struct{}

func newLink(*net.UnixConn) (*link, error)                      { return nil, errUnsupported }
func (*link) interrupt()                                        {}
func (*link) interrupted()                                      {}
func (*link) close(func())                                      {}
func (*link) takeDescriptors() error                            { return errUnsupported }
func (*link) receive([]byte) (int, *os.File, bool, error)       { return 0, nil, false, errUnsupported }
func (*link) send([]byte, *os.File, bool) (bool, error)         { return false, errUnsupported }
func (*link) credentials() (Credentials, error)                 { return Credentials{}, errUnsupported }
func (*link) watchPeer(int) (*pidfd.Process, error)             { return nil, errUnsupported }
func listen(context.Context, string, string) (*listener, error) { return nil, errUnsupported }
func dial(context.Context, string) (*net.UnixConn, error)       { return nil, errUnsupported }
func duplicate(*os.File) (*os.File, error)                      { return nil, errUnsupported }

func maxHeld() int64  { return 0 }
func ending(int) bool { return false }
