/*
 * The C interface of the owner cell, the reference count of a piece of memory.
 *
 * A cell counts the references to the memory and has the properties that exports of the
 * memory need. Cells live in one address range that is reserved once and never unmapped, so
 * a late read of a cell is safe. The generation of a cell changes when it is reused, which
 * makes older handles stale. It has 32 bits: after 2^32 reuses an old handle is valid again.
 *
 * Threads: every function may be called from any thread. None takes a lock, enters Go or
 * needs Python's lock. The maker of a cell writes its plain fields before it publishes the
 * cell.
 *
 * Go mirrors this file: it has the same layout and algorithms. A test compares the offsets.
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
	USMB_CELL_EXPORTED = 2,      /* was exported by an exchange protocol */
	USMB_CELL_HOST_READABLE = 4, /* the host can read the memory */
	USMB_CELL_FOREIGN = 8,       /* memory of another library, released by at_zero or a Go closer */
	USMB_CELL_QUEUED = 16,       /* freed, with work still pending */
	USMB_CELL_PENDING_HELD = 32, /* lock of pending */
	USMB_CELL_POISONED = 64,     /* free, and filled with a pattern that detects writes */
	USMB_CELL_CHARGED = 128,     /* charged to the account whose number is ctx */
	USMB_CELL_LENT = 256,        /* allocated by address, without a handle */
	USMB_CELL_ASYNC = 1024,      /* shown with the default queues of its place */
	USMB_CELL_ON_QUEUES = 2048,  /* shown with queues that Go has recorded */
	USMB_CELL_ALIAS = 4096,      /* a second owner of the memory of another cell, see usmb_cell_record */
	USMB_CELL_FAILED = 8192, /* work on the memory has failed; the next wait returns the failure and clears this */
	USMB_CELL_CUDA = 16384,  /* was exported to a library of CUDA, which does not use SYCL's queues */
	USMB_CELL_IMPORTED = 32768, /* its owner may have unreported work on it */
	USMB_CELL_USED = 15 << 16,  /* see usmb_cell_used */
	USMB_CELL_TORN = 512        /* in a forked child: work on the memory had not ended at the fork */
};

/* The number of observers of the memory, in the flags of its record: see usmb_cell_observe. The largest number stays. */
#define USMB_CELL_OBSERVERS ((uint32_t)0xFFF << 20)
#define USMB_CELL_OBSERVER ((uint32_t)1 << 20)

/* The flags of memory on which other libraries may have devices work without reporting it, because it was
 * exported, shown or imported. */
enum {
	USMB_CELL_SEEN = USMB_CELL_EXPORTED | USMB_CELL_IMPORTED | USMB_CELL_ASYNC | USMB_CELL_ON_QUEUES |
	USMB_CELL_CUDA
};

/* The queues on which functions of this library gave the memory to a library that computes. Its work is followed by
 * the events of that library, not by barriers, and that library keeps the memory alive until the work has ended. */
enum {
	USMB_USED_NO = 0,
	USMB_USED_LAST = 14,    /* up to it: the number of the only queue */
	USMB_USED_SEVERAL = 15, /* several queues */
	USMB_USED_SHIFT = 16    /* position in the flags */
};

/* The wake-up of a reaper: an eventfd that is written only while the reaper sleeps. */
typedef struct usmb_waker {
	_Atomic uint32_t armed; /* 1 while the reaper sleeps or is about to */
	int32_t fd;             /* non-blocking eventfd, -1 for none */
} usmb_waker;

typedef struct usmb_cell usmb_cell;

/* A drop list: any thread pushes dead cells, and a drain takes the whole chain. */
typedef struct usmb_list {
	_Atomic uint64_t word;     /*  0 the count is always 0, so handles of the cell before stay stale */
	_Atomic(usmb_cell *) head; /*  8 last cell pushed */
	usmb_waker *waker;         /* 16 waker of the reaper, NULL for none */
	uint32_t id;               /* 24 Go's table index, 0 for a list that C made */
	uint32_t reserved32;       /* 28 */
	usmb_waker own;            /* 32 waker of the list's own reaper, if it has one */
	/* 40 called on any thread before C pushes a cell; NULL for none. Returns 1 if it has
	   finished and recycled the cell. Set before the list has cells. */
	int (*here)(usmb_cell *dead);
	uint64_t reserved[10]; /* 48 */
} usmb_list;                   /* 128 bytes: it takes the place of a cell */

/* The first cache line has the fields that allocating and freeing access. */
struct usmb_cell {
	_Atomic uint64_t word;            /*  0 generation<<32 | count */
	usmb_cell *next;                  /*  8 link while on a drop list */
	_Atomic(void *) pending;          /* 16 owned event of the last submitted work, NULL for none */
	_Atomic(void *) queue;            /* 24 queue of last use, borrowed, NULL for none */
	uint64_t requested;               /* 32 bytes the user asked for */
	uint64_t private;                 /* 40 used by the maker of the cell; in a pool, the block's size class */
	uint32_t resource;                /* 48 index of the Go resource that owns the memory */
	_Atomic uint32_t flags;           /* 52 USMB_CELL_* */
	uint32_t stack;                   /* 56 recorded stack of the allocation, 0 for none */
	uint32_t tag;                     /* 60 user's tag, 0 for none */
	usmb_list *home;                  /* 64 list that gets the cell when the count reaches 0 */
	void (*at_zero)(usmb_cell *cell); /* 72 runs before the cell is recycled; NULL: Go's drain function runs */
	void *data;                       /* 80 base address of the allocation */
	uint64_t size;                    /* 88 its size in bytes; UINT64_MAX if unknown */
	void *place;                      /* 96 usmb_place of the memory, NULL for plain host memory */
	void *ctx;                        /* 104 context of at_zero */
	uint32_t block;                   /* 112 index of a pool's block */
	_Atomic uint32_t link;            /* 116 of a free cell, the next one; of an alias, its record */
	uint64_t magazine;                /* 120 a pool's magazine that this cell heads */
};

/* Head of the reservation, in the place of cell 0. */
typedef struct usmb_control {
	_Atomic uint64_t free_head; /*  0 tag<<32 | index of the first free cell, index 0 for none */
	uint64_t pad[7];            /*  8 keeps the contended word alone on its line */
	_Atomic uint32_t bump;      /* 64 first cell that was never used */
	_Atomic uint32_t committed; /* 68 cells below this index are accessible */
	uint32_t limit;             /* 72 cells in the reservation */
	uint32_t slab;              /* 76 cells made accessible at a time */
	usmb_waker waker;           /* 80 of the common reaper */
	uint32_t layout;            /* 88 USMB_OWNER_LAYOUT */
	uint32_t cell_bytes;        /* 92 sizeof(usmb_cell) */
	uint64_t reserved[4];       /* 96 */
} usmb_control;                     /* 128 bytes */

#define USMB_OWNER_LAYOUT 1u

/* The control block. It is NULL until Go has made the reservation, at package
 * initialisation. */
extern usmb_control *usmb_owner_control;

/* Returns a cell with count 1, the given home, size UINT64_MAX and all other fields zero, or
 * NULL if there is no memory. */
usmb_cell *usmb_cell_new(usmb_list *home);

/* Puts a dead cell on its home list and wakes the reaper if it sleeps, unless the list's
 * function here finishes the cell. Finishes a cell without home immediately. */
void usmb_cell_push(usmb_cell *dead);

/* Makes a dead cell free for reuse and all its handles stale. */
void usmb_cell_recycle(usmb_cell *dead);

/* Runs at_zero, if set, and recycles the cell. */
void usmb_cell_finish(usmb_cell *dead);

/* Drops one reference and pushes the cell if it was the last. Deleters of exchange protocols
 * call this function. */
void usmb_cell_drop(void *cell);

/* usmb_cell_unobserve and usmb_cell_drop: for deleters of tensors that the host accesses. */
void usmb_cell_drop_observed(void *cell);

/* Returns a list without a reaper, which the caller drains, or NULL if there is no memory. */
usmb_list *usmb_list_new(void);

/* Removes and returns all cells, oldest first, linked by next, or NULL. */
usmb_cell *usmb_list_take(usmb_list *list);

/* Removes all cells, finishes those with an at_zero and returns their number. Stores the
 * remaining ones, which Go drains, as a chain in *rest, or recycles them if rest is NULL. */
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

/* Adds a reference. The caller must hold one. */
static inline void usmb_cell_retain(usmb_cell *cell)
{
	atomic_fetch_add_explicit(&cell->word, 1, memory_order_relaxed);
}

/* Adds a reference if the handle (cell, generation) is valid. Returns 1 if it did. */
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

/* Drops a reference. Returns 1 if it was the last: the caller must then push the cell
 * (usmb_cell_push), or finish it where at_zero may run (usmb_cell_finish). */
static inline int usmb_cell_unref(usmb_cell *cell)
{
	return (uint32_t)atomic_fetch_sub_explicit(&cell->word, 1, memory_order_acq_rel) == 1;
}

/* Locks the pending event. The event is an owned reference: between loading it and copying
 * the reference, no other thread may exchange and delete it. Do not wait while holding the
 * lock. Dropping a reference never takes it. */
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

static inline usmb_cell *usmb_cell_at(uint32_t index)
{
	return (usmb_cell *)usmb_owner_control + index;
}

static inline uint32_t usmb_cell_index(const usmb_cell *cell)
{
	return (uint32_t)(cell - (const usmb_cell *)usmb_owner_control);
}

/* Returns the cell with the pending event, the queues and the observers of the memory: the cell itself, or for an
 * alias the cell whose index is in link, which the alias or the owner of its memory keeps alive. */
static inline usmb_cell *usmb_cell_record(usmb_cell *cell)
{
	if (atomic_load_explicit(&cell->flags, memory_order_relaxed) & USMB_CELL_ALIAS)
		return usmb_cell_at(atomic_load_explicit(&cell->link, memory_order_relaxed));
	return cell;
}

/* Makes a cell that only the caller knows an alias, which takes over a reference of the record, or whose owner keeps the
 * record alive. */
static inline void usmb_cell_set_record(usmb_cell *cell, usmb_cell *record)
{
	atomic_store_explicit(&cell->link, usmb_cell_index(record), memory_order_relaxed);
	atomic_fetch_or_explicit(&cell->flags, USMB_CELL_ALIAS, memory_order_relaxed);
}

/* Counts an observer: somebody who can access the memory without a call of this library, as through a view. Work of
 * devices that this library submits on observed memory ends before the call returns. The caller holds a reference of
 * the cell until usmb_cell_unobserve. Plain memory, on which devices do not work, has no observers. */
static inline void usmb_cell_observe(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	if (cell->place == NULL) return;
	uint32_t flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	while ((flags & USMB_CELL_OBSERVERS) != USMB_CELL_OBSERVERS)
		if (atomic_compare_exchange_weak_explicit(&cell->flags, &flags, flags + USMB_CELL_OBSERVER,
		                                          memory_order_seq_cst, memory_order_relaxed))
			return;
}

static inline void usmb_cell_unobserve(usmb_cell *cell)
{
	cell = usmb_cell_record(cell);
	if (cell->place == NULL) return;
	uint32_t flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	while ((flags & USMB_CELL_OBSERVERS) != USMB_CELL_OBSERVERS)
		if (atomic_compare_exchange_weak_explicit(&cell->flags, &flags, flags - USMB_CELL_OBSERVER,
		                                          memory_order_release, memory_order_relaxed))
			return;
}

static inline int usmb_cell_observed(usmb_cell *cell)
{
	return (atomic_load(&usmb_cell_record(cell)->flags) & USMB_CELL_OBSERVERS) != 0;
}

/* Returns the number of the queue on which the memory was used: USMB_USED_*. */
static inline uint32_t usmb_cell_used(const usmb_cell *cell)
{
	return (atomic_load_explicit(&cell->flags, memory_order_relaxed) & USMB_CELL_USED) >> USMB_USED_SHIFT;
}

/* Records that the memory is used on the queue with that number. */
static inline void usmb_cell_use(usmb_cell *cell, uint32_t number)
{
	uint32_t flags = atomic_load_explicit(&cell->flags, memory_order_relaxed), next;

	do {
		uint32_t used = (flags & USMB_CELL_USED) >> USMB_USED_SHIFT;

		if (used == number || used == USMB_USED_SEVERAL) return;
		if (used != USMB_USED_NO) number = USMB_USED_SEVERAL;
		next = (flags & ~(uint32_t)USMB_CELL_USED) | number << USMB_USED_SHIFT;
	} while (!atomic_compare_exchange_weak_explicit(&cell->flags, &flags, next, memory_order_relaxed,
	                                                memory_order_relaxed));
}

_Static_assert(sizeof(usmb_waker) == 8, "usmb_waker");
_Static_assert(sizeof(void *) != 8 || sizeof(usmb_list) == 128, "usmb_list");
_Static_assert(sizeof(void *) != 8 || sizeof(usmb_cell) == 128, "usmb_cell");
_Static_assert(sizeof(usmb_control) == 128, "usmb_control");

#endif
