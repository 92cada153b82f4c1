// Command wheel builds the Python package usmbridge as a wheel,
// dist/usmbridge-VERSION-cp311-abi3-PLATFORM.whl. The wheel has the Python sources and a shared library with the Go
// code, for the stable ABI of CPython 3.11. PLATFORM names the oldest glibc that the library needs. The command
// needs Go and a C compiler, and no Python.
//
//	go run ./internal/tools/wheel [-out dist] [-zig python] [-reproduce]
//
// With -zig, the C compiler of the Python package ziglang compiles for glibc 2.28. Every library is audited.
package main
