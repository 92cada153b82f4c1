// Package umf offers memory pools of the Unified Memory Framework (libumf.so, as
// the Python package umf and oneAPI's runtimes carry it) as resources of package
// memmgr, when that library can be found at run time.
//
// It serves as an optional upstream, and as the peer that this module's own pool
// is measured against. Memory is the host's: UMF has no provider for SYCL.
//
// # Ownership and threads
//
// A [Pool] belongs to whoever made it, and is closed after the last of its
// blocks is freed. Its methods may be called from any goroutine. The library is
// never unloaded.
package umf
