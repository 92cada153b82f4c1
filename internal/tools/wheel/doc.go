// Package wheel builds the wheel for distribution: dist/usmbridge-VERSION-cp311-abi3-PLATFORM.whl, with the Python
// sources and a shared library with the Go code, for the stable ABI of CPython 3.11. internal/pypackage is the Python
// project, which any front end of PEP 517 builds. wheel.sh builds it with the C compiler zig for glibc 2.28, checks it
// with auditwheel and abi3audit, and builds it again to compare. internal/pypackage/extension is the library.
package wheel
