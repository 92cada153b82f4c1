// Package seccomp has the kernel refuse system calls, as a sandbox does: for tests of what
// happens then. Linux on amd64.
package seccomp
