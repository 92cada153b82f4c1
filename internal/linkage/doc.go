// Package linkage reports how this program was linked. A statically linked program cannot load shared
// libraries: dlopen crashes or loads a second C library.
package linkage
