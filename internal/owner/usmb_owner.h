/*
 * The owner cell: the only owner that memory has, seen from C.
 *
 * A cell counts the references to one piece of memory and carries the facts
 * that whoever shows that memory to others needs. Cells live in one address
 * range that is reserved once and never unmapped, so reading a cell is always
 * safe, however late; a generation tells a handle that its cell has since been
 * given to other memory.
 *
 * Threads: every function here may be called from any thread. None takes a
 * lock, none enters Go, none needs Python's lock. A cell's plain fields are
 * written by whoever made it, before it is shown to others.
 *
 * Go mirrors this file: the layout and the algorithms are the same there, and a
 * test compares the offsets.
 */
#ifndef USMB_OWNER_H
#define USMB_OWNER_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

#ifdef __cplusplus
#error "usmb_owner.h is C11: _Atomic fields have no portable C++ spelling"
#endif

/* Bits of usmb_cell.flags. */
enum {
	USMB_CELL_READONLY = 1,      /* writes through this owner are refused */
	USMB_CELL_EXPORTED = 2,      /* left our hands through an exchange protocol */
	USMB_CELL_HOST_READABLE = 4, /* the processor may read the memory */
	USMB_CELL_FOREIGN = 8,       /* memory of others, released by at_zero or a Go closer */
	USMB_CELL_QUEUED = 16,       /* free has been asked for, work is still pending */
	USMB_CELL_PENDING_HELD = 32, /* somebody looks at or changes pending right now */
	USMB_CELL_POISONED = 64,     /* nobody uses the block, and it is filled to show who does */
	USMB_CELL_CHARGED = 128,     /* the account that the context numbers is charged with it */
	USMB_CELL_LENT = 256,        /* given out by its address, without a handle */
	USMB_CELL_SHOWN = 512,       /* C was given the cell */
	USMB_CELL_ASYNC = 1024       /* shown to those who let devices work on it in their own queues */
};

/* What wakes a reaper: an eventfd, written only while somebody sleeps on it. */
typedef struct usmb_waker {
	_Atomic uint32_t armed; /* 1 while the reaper sleeps or is about to */
	int32_t fd;             /* non-blocking eventfd, -1 for none */
} usmb_waker;

typedef struct usmb_cell usmb_cell;

/* A drop list: dead cells pushed by any thread, taken as a whole chain. */
typedef struct usmb_list {
	_Atomic uint64_t word;     /*  0 count 0 for ever: a stale handle to the place stays invalid */
	_Atomic(usmb_cell *) head; /*  8 last pushed */
	usmb_waker *waker;         /* 16 who to wake, NULL for nobody */
	uint32_t id;               /* 24 Go's table index, 0 for a list that C made */
	uint32_t reserved32;       /* 28 */
	usmb_waker own;            /* 32 used when the list has a reaper of its own */
	/* 40 asked with a cell that C is about to push, on any thread: 1 when it has ended
	   and recycled the cell there and then. NULL: nobody. Set before the list has cells. */
	int (*here)(usmb_cell *dead);
	uint64_t reserved[10]; /* 48 */
} usmb_list;                   /* 128 bytes: it lives in a cell's place */

/* The first cache line is what giving out and taking back touches. */
struct usmb_cell {
	_Atomic uint64_t word;            /*  0 generation<<32 | count */
	usmb_cell *next;                  /*  8 link while on a drop list */
	_Atomic(void *) pending;          /* 16 owned event of the last work submitted on it, NULL: none */
	_Atomic(void *) queue;            /* 24 queue of last use, borrowed, NULL: none */
	uint64_t requested;               /* 32 bytes the user asked for */
	uint64_t private;                 /* 40 whoever made the cell: a pool, the block's size class */
	uint32_t resource;                /* 48 index of the Go resource that owns the memory */
	_Atomic uint32_t flags;           /* 52 USMB_CELL_* */
	uint32_t stack;                   /* 56 record of the place of allocation, 0: none */
	uint32_t tag;                     /* 60 user's tag, 0: none */
	usmb_list *home;                  /* 64 list that gets the cell when the count reaches 0 */
	void (*at_zero)(usmb_cell *cell); /* 72 C job of the drainer, which recycles afterwards; NULL: Go's */
	void *data;                       /* 80 base address of the allocation */
	uint64_t size;                    /* 88 its size in bytes; UINT64_MAX when unknown */
	void *place;                      /* 96 usmb_place of the memory, NULL: plain host memory */
	void *ctx;                        /* 104 context of at_zero */
	uint32_t block;                   /* 112 index of a pool's block */
	_Atomic uint32_t link;            /* 116 next free cell, while the cell is free */
	uint64_t magazine;                /* 120 a pool's magazine that this cell heads */
};

/* Head of the reservation, in the place of cell 0. */
typedef struct usmb_control {
	_Atomic uint64_t free_head; /*  0 tag<<32 | index of the first free cell, index 0: none */
	uint64_t pad[7];            /*  8 keeps the contended word alone on its line */
	_Atomic uint32_t bump;      /* 64 first cell never used yet */
	_Atomic uint32_t committed; /* 68 cells below this index are readable */
	uint32_t limit;             /* 72 cells in the reservation */
	uint32_t slab;              /* 76 cells made readable at a time */
	usmb_waker waker;           /* 80 of the common reaper */
	uint32_t layout;            /* 88 USMB_OWNER_LAYOUT */
	uint32_t cell_bytes;        /* 92 sizeof(usmb_cell) */
	uint64_t reserved[4];       /* 96 */
} usmb_control;                     /* 128 bytes */

#define USMB_OWNER_LAYOUT 1u

/* The control block, NULL until Go has made the reservation (at package
 * initialisation, before any Go code that could call C). */
extern usmb_control *usmb_owner_control;

/* A new cell with count 1, home as given, size UINT64_MAX, all else zero.
 * NULL when the system gives no more memory. */
usmb_cell *usmb_cell_new(usmb_list *home);

/* Puts a dead cell on its home list and wakes the reaper when it sleeps, unless the
 * list's here ends it. A cell without home is finished here and now. */
void usmb_cell_push(usmb_cell *dead);

/* Gives a dead cell's place back; its generation moves on, so every handle to
 * it becomes invalid. */
void usmb_cell_recycle(usmb_cell *dead);

/* Runs at_zero, if any, and recycles. For drainers. */
void usmb_cell_finish(usmb_cell *dead);

/* Drops one reference; the last one pushes the cell. This is the function that
 * deleters of exchange protocols call: any thread, no lock, no entry into Go. */
void usmb_cell_drop(void *cell);

/* A list nobody drains but the caller (it wakes nobody). NULL: no memory. */
usmb_list *usmb_list_new(void);

/* Takes the whole chain, oldest first, linked by next; NULL when empty. */
usmb_cell *usmb_list_take(usmb_list *list);

/* Takes the chain and finishes every cell that has an at_zero; returns the
 * others (Go's) as a chain in *rest and the number finished. rest may be NULL:
 * then those are recycled too. */
size_t usmb_list_run(usmb_list *list, usmb_cell **rest);

static inline int usmb_list_empty(usmb_list *list)
{
	return atomic_load_explicit(&list->head, memory_order_acquire) == NULL;
}

static inline uint32_t usmb_cell_count(usmb_cell *cell)
{
	return (uint32_t)atomic_load_explicit(&cell->word, memory_order_acquire);
}

static inline uint32_t usmb_cell_generation(usmb_cell *cell)
{
	return (uint32_t)(atomic_load_explicit(&cell->word, memory_order_relaxed) >> 32);
}

/* Adds a reference; the caller holds one already. */
static inline void usmb_cell_retain(usmb_cell *cell)
{
	atomic_fetch_add_explicit(&cell->word, 1, memory_order_relaxed);
}

/* Adds a reference if the handle (cell, generation) is alive; 1 on success. */
static inline int usmb_cell_try_retain(usmb_cell *cell, uint32_t generation)
{
	uint64_t w = atomic_load_explicit(&cell->word, memory_order_relaxed);
	while ((uint32_t)(w >> 32) == generation && (uint32_t)w != 0) {
		if (atomic_compare_exchange_weak_explicit(&cell->word, &w, w + 1, memory_order_acquire,
		                                          memory_order_relaxed))
			return 1;
	}
	return 0;
}

/* Drops a reference; 1 when it was the last: the caller then must finish the
 * cell (usmb_cell_push, or usmb_cell_finish where it may run at_zero). */
static inline int usmb_cell_unref(usmb_cell *cell)
{
	return (uint32_t)atomic_fetch_sub_explicit(&cell->word, 1, memory_order_acq_rel) == 1;
}

/* The pending event is an owned reference, so reading it takes two steps (load,
 * copy the reference) that must not mix with somebody else's exchange and
 * delete. Hold it for those steps only; never while waiting. Dropping a
 * reference never needs it. */
static inline void usmb_cell_hold_pending(usmb_cell *cell)
{
	while (atomic_fetch_or_explicit(&cell->flags, USMB_CELL_PENDING_HELD, memory_order_acquire) &
	       USMB_CELL_PENDING_HELD)
		sched_yield();
}

static inline void usmb_cell_let_pending(usmb_cell *cell)
{
	atomic_fetch_and_explicit(&cell->flags, ~(uint32_t)USMB_CELL_PENDING_HELD, memory_order_release);
}

static inline uint32_t usmb_cell_index(const usmb_cell *cell)
{
	return (uint32_t)(cell - (const usmb_cell *)usmb_owner_control);
}

static inline usmb_cell *usmb_cell_at(uint32_t index)
{
	return (usmb_cell *)usmb_owner_control + index;
}

_Static_assert(sizeof(usmb_waker) == 8, "usmb_waker");
_Static_assert(sizeof(void *) != 8 || sizeof(usmb_list) == 128, "usmb_list");
_Static_assert(sizeof(void *) != 8 || sizeof(usmb_cell) == 128, "usmb_cell");
_Static_assert(sizeof(usmb_control) == 128, "usmb_control");

#endif
