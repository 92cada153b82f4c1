// Package owner holds the one owner that memory has in this module: a small
// counted cell that Go and C share.
//
// A [Cell] is 128 bytes: a reference count with a generation, what to do when
// the count reaches zero, and the facts of the memory (base address, size,
// place, pending work, queue of last use). Its layout is that of usmb_cell in
// usmb_owner.h, and both languages run the same algorithms on it. Cells lie in
// one address range that is reserved once and never given back, so a late
// reader always reads a cell, and a [Ref] (cell and generation) can tell that
// its memory is gone.
//
// # Ownership
//
// A new cell has count 1. Go retains and releases through a Ref, which
// refuses when the handle is stale; C drops with usmb_cell_drop, whose address
// [DropFunc] gives. Whoever drops the last reference in Go runs the home list's
// drain function at once, in its own goroutine; C pushes the cell on the home
// list instead, and the list's owner or the reaper drains it.
//
// # Threads
//
// Everything is safe for concurrent use unless it says otherwise. C's drop
// takes no lock and never enters Go. One reaper goroutine serves all lists; it
// sleeps on an eventfd that is written only while it sleeps. A list whose drain
// function may block for long (Python's, which needs the interpreter lock) asks
// for a goroutine of its own with [OwnGoroutine].
//
// Without cgo the package works the same; there is just no C to drop from, and
// DropFunc returns 0.
//
// # Compatibility
//
// This package is exported because the other packages of the module and their C
// code share it. It is not part of the promise of compatibility: names and layout
// change with any version. Programs use [memmgr.Buffer].
//
// [memmgr.Buffer]: https://pkg.go.dev/github.com/usmbridge/usmbridge/memmgr#Buffer
package owner
