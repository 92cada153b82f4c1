package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/internal/userid"
)

// fileLock serializes the creation of a socket file. It is a lock on a second file in the same directory.
// Only the user of this process may open that file, so that no other user can block it. (A lock on the
// directory would not do: each process that may read a directory can lock it.) The file exists while a
// server starts, and is removed before the lock is released.
type fileLock struct {
	file *os.File
	path string
}

const lockSuffix = ".lock"

// lockFile acquires the lock of a socket file.
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
			return nil, operr.Ended(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// try acquires the lock if it is free. If the lock file was removed between open and flock, try reports
// false: the next process would create and lock a new file.
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
	if err := l.check(); err != nil {
		return false, err
	}
	switch err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return false, nil
	case err != nil:
		return false, os.NewSyscallError("flock", err)
	}
	return l.isCurrent(), nil
}

// check returns an error if another user owns the file or may open it, or if the file has a second name.
// Another user could have made such a link to a file of this user, which this process would then lock and
// remove.
func (l *fileLock) check() error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(l.file.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || userid.CheckOwn(st.Uid) != nil || st.Mode&0o077 != 0 || st.Nlink > 1 {
		return fmt.Errorf("%s exists and has mode %#o, owner %d and %d links, want a regular file of this user with mode 0600 and one link; "+
			"remove it, or listen in a directory that other users cannot write to", l.path, st.Mode, st.Uid, st.Nlink)
	}
	return nil
}

// isCurrent reports whether the open file is still the file at the path.
func (l *fileLock) isCurrent() bool {
	open, err := l.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(open, now)
}

// release removes the file and releases the lock.
func (l *fileLock) release() {
	if l.isCurrent() {
		_ = os.Remove(l.path) // if that fails, the next server uses the file again
	}
	_ = l.file.Close()
}
