// Package pidfd waits for the end of processes, children of this one or not. It does not reap them. On
// systems other than Linux all functions return errors.ErrUnsupported.
package pidfd
