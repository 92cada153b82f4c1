package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/internal/userid"
)

// fileLock is held by whoever makes a socket file: a file beside it that its user alone may
// open, so that nobody else can hold it. (Whoever may read a directory can lock that.) It is
// there while a server starts, and taken away before it is let go.
type fileLock struct {
	file *os.File
	path string
}

const lockSuffix = ".lock"

// lockFile takes the lock of a socket file.
func lockFile(ctx context.Context, socket string) (*fileLock, error) {
	l := &fileLock{path: socket + lockSuffix}
	for {
		taken, err := l.try()
		if err != nil {
			return nil, err
		}
		if taken {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// try takes the lock if nobody has it. One that was taken away meanwhile does not count: the
// next to come would make another beside it.
func (l *fileLock) try() (taken bool, err error) {
	fd, err := syscall.Open(l.path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "open", Path: l.path, Err: err}
	}
	l.file = os.NewFile(uintptr(fd), l.path)
	defer func() {
		if !taken {
			_ = l.file.Close()
		}
	}()
	if err := l.mine(); err != nil {
		return false, err
	}
	switch err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return false, nil
	case err != nil:
		return false, os.NewSyscallError("flock", err)
	}
	return l.there(), nil
}

// mine refuses a file that another user made or may open, and one that has a second name: by a
// link to a file of this user's, somebody else could have that locked, and taken away.
func (l *fileLock) mine() error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(l.file.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || userid.CheckOwn(st.Uid) != nil || st.Mode&0o077 != 0 || st.Nlink > 1 {
		return fmt.Errorf("%s is there, with mode %#o, of user %d and with %d names, and not a file of one name that this user alone may open; "+
			"remove it, or listen in a directory that others cannot write to", l.path, st.Mode, st.Uid, st.Nlink)
	}
	return nil
}

// there reports whether the file that is open is the one that lies there.
func (l *fileLock) there() bool {
	open, err := l.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(open, now)
}

// release takes the file away and lets the lock go.
func (l *fileLock) release() {
	if l.there() {
		_ = os.Remove(l.path) // else it stays, empty, and is used again
	}
	_ = l.file.Close()
}
