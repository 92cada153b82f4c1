//go:build !linux || 386

package share

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
)

// Other systems than Linux have no abstract socket names, pidfds or sealed memory, and on 386 package
// syscall has no direct socket calls. Listen and Dial fail with errors.ErrUnsupported.

var errUnsupported = fmt.Errorf("sharing memory between processes is not supported on this system or architecture: %w", errors.ErrUnsupported)

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
