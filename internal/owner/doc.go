// Package owner provides the owner cell: the reference count of a piece of memory, shared by Go and
// C.
//
// A [Cell] has 128 bytes: a reference count with a generation, the action for a count of zero, and
// the properties of the memory (base address, size, place, pending work, queue of last use). Its
// layout is that of usmb_cell in usmb_owner.h, and both languages run the same algorithms on it.
// Cells lie in one address range that is reserved once and never released. A late reader thus
// always reads a cell, and a [Ref] (cell and generation) detects that its memory is gone.
//
// # Ownership
//
// A new cell has count 1. Go retains and releases it through a Ref, which refuses if it is stale. C
// drops a reference by usmb_cell_drop, whose address is [DropFunc]. When Go drops the last
// reference, the drain function of the home list runs immediately, in the same goroutine. When C
// does, it pushes the cell on the home list, and the owner of the list or the reaper drains it.
//
// # Threads
//
// All functions are safe for concurrent use unless their comments say otherwise. The drop function
// of C takes no lock and never enters Go. One reaper goroutine serves all lists. It sleeps on an
// eventfd that is written only while it sleeps; while the process has no descriptor for one, it looks
// ten times a second. A list whose drain function can block for long
// (Python's, which needs the interpreter lock) has its own goroutine ([OwnGoroutine]).
//
// Without cgo the package works the same, but no C code can drop references, and DropFunc returns
// 0.
package owner
