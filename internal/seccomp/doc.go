// Package seccomp makes the kernel refuse system calls, as a sandbox does. It is for tests, on Linux
// and amd64.
package seccomp
