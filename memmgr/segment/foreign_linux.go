package segment

import (
	"os"
	"syscall"
)

// sharedDirectory is the directory of shm_open.
const sharedDirectory = "/dev/shm/"

// openNamed opens shared memory by its name. It does not follow links, and opens only regular files,
// because opening a pipe can block and opening a device can have effects.
func openNamed(name string, readOnly bool) (int, error) {
	path := sharedDirectory + name
	info, err := os.Lstat(path)
	if err != nil {
		return -1, err
	}
	if !info.Mode().IsRegular() {
		return -1, &os.PathError{Op: "open " + info.Mode().Type().String(), Path: path, Err: syscall.EACCES}
	}
	flags := syscall.O_RDWR
	if readOnly {
		flags = syscall.O_RDONLY
	}
	fd := -1
	// The file may have been replaced since Lstat. Foreign.admit checks the opened descriptor.
	err = retried(func() (err error) {
		fd, err = syscall.Open(path, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		return err
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// factsOf reads the properties of a descriptor. It reads the seals before the size, so that the size
// of a sealed file is final. In the other order the file could shrink and be sealed in between.
func factsOf(fd int) (f fileFacts, err error) {
	if seals, err := fileSeals(fd); err == nil {
		f.unchanged = seals&sealShrink != 0
	}
	var st syscall.Stat_t
	if err := retried(func() error { return syscall.Fstat(fd, &st) }); err != nil {
		return f, os.NewSyscallError("fstat", err)
	}
	f.uid, f.size = st.Uid, uint64(max(st.Size, 0))
	f.mode = st.Mode
	if st.Mode&syscall.S_IFMT == syscall.S_IFREG {
		_, err := pagedFileSize(fd)
		f.memory = err == nil
	}
	return f, nil
}

// forbidden reports whether a file may not be opened or mapped in this way.
func forbidden(err error) bool {
	return isOneOf(err, syscall.EACCES, syscall.EPERM, syscall.ELOOP, syscall.ENXIO, syscall.EISDIR)
}
