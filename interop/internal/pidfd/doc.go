// Package pidfd tells the end of processes, children of this one or not. It reaps nobody. On
// other systems than Linux every way in answers errors.ErrUnsupported.
package pidfd
