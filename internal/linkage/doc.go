// Package linkage knows how this program was linked. A statically linked program cannot load
// shared libraries: dlopen in it ends in a crash or in a second C library.
package linkage
