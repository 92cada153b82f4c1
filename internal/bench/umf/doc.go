// Package umf provides memory pools of the Unified Memory Framework as resources of package memmgr. It
// loads libumf.so at run time, which is part of the Python package umf and of oneAPI's runtimes.
//
// The pools are an optional upstream, and a reference for benchmarks of this module's pool. They
// allocate host memory, because UMF has no provider for SYCL.
//
// # Ownership and threads
//
// The caller owns a [Pool] and closes it after the last of its blocks is freed. Its methods
// except Close are safe for concurrent use. The library is never unloaded.
package umf
