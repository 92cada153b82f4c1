/* kept.c: memory that arrays gave back, for the next arrays of the same size. Under the
   GIL memory comes and goes; whoever reads or trims the pools takes it away on any
   thread, with an exchange of a slot for NULL, which alone says whose a cell is. */
#include <stdatomic.h>

#include "usmb_kept.h"
#include "usmb_pystate.h"
#include "usmb_storage.h"

enum { SETS = 16, WAYS = 4, WISHES = 8 };
#define KEEP_BYTES ((uint64_t)4 << 20)

static struct set {
	_Atomic(usmb_cell *) cells[WAYS];
	uint64_t requested[WAYS]; /* this and the rest under the GIL */
	usmb_wish wishes[WAYS];
	unsigned oldest;
} sets[SETS];
/* What was put here less what was taken out again, under the GIL; and what other threads
   have taken of it that is not deducted yet. */
static uint64_t kept_bytes;
static int64_t kept_cells;
static _Atomic uint64_t gone_bytes;
static _Atomic int64_t gone_cells;

/* What cells of a wish look like when Go makes them. */
static struct {
	uint64_t serial; /* of their place, 0 for none */
	void *queue;     /* compared, never used */
	uint32_t flags;
} fresh[WISHES];

static struct set *set_of(uint64_t bytes, usmb_wish wish)
{
	return &sets[((bytes * WISHES + wish) * 0x9E3779B97F4A7C15u) >> 60];
}

/* What lies there, the caller's then; NULL where it was empty, or somebody was quicker. */
static usmb_cell *take_at(struct set *s, int i)
{
	usmb_cell *cell = atomic_exchange_explicit(&s->cells[i], NULL, memory_order_acq_rel);
	if (!cell) return NULL;
	kept_bytes -= cell->size;
	kept_cells--;
	return cell;
}

/* Deducts what others have taken. */
static void deduct(void)
{
	if (atomic_load_explicit(&gone_cells, memory_order_relaxed) == 0) return;
	kept_cells -= atomic_exchange_explicit(&gone_cells, 0, memory_order_acquire);
	kept_bytes -= atomic_exchange_explicit(&gone_bytes, 0, memory_order_relaxed);
}

usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish)
{
	if (kept_cells == 0) return NULL; /* too many at worst */
	struct set *s = set_of(bytes, wish);
	for (int i = 0; i < WAYS; i++) {
		if (s->wishes[i] != wish || s->requested[i] != bytes) continue;
		usmb_cell *cell = take_at(s, i);
		if (!cell) continue;
		/* SYCL may have been found since: then the default is another place. */
		if (!cell->place && !(wish & 4) && usmb_sycl_loaded()) {
			usmb_cell_push(cell);
			continue;
		}
		uint64_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);
		atomic_store_explicit(&cell->word, ((word >> 32) + 1) << 32 | 1, memory_order_release);
		return cell;
	}
	return NULL;
}

void usmb_kept_note(usmb_cell *cell, usmb_wish wish)
{
	fresh[wish].queue = atomic_load_explicit(&cell->queue, memory_order_relaxed);
	fresh[wish].flags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	fresh[wish].serial = cell->place ? ((usmb_place *)cell->place)->serial : 0;
}

int usmb_kept_lies_at(usmb_wish wish, const usmb_place *place)
{
	return fresh[wish].serial == place->serial;
}

/* Not what was exported by DLPack, used on another queue, is worked on, or is to be seen in a
   profile: that is for the pool to sort out. */
static int may_be_kept(usmb_cell *cell, usmb_wish wish)
{
	return atomic_load_explicit(&cell->pending, memory_order_acquire) == NULL &&
	       (atomic_load_explicit(&cell->flags, memory_order_relaxed) & ~(uint32_t)USMB_CELL_ASYNC) ==
	               fresh[wish].flags &&
	       atomic_load_explicit(&cell->queue, memory_order_relaxed) == fresh[wish].queue && cell->stack == 0 &&
	       cell->size <= KEEP_BYTES / 2 && usmb_py_alive() && !usmb_py_in_child();
}

void usmb_kept_drop(usmb_cell *cell, usmb_wish wish)
{
	if (usmb_owned_by_python(cell)) {
		usmb_cell_drop_gil(cell);
		return;
	}
	if (!usmb_cell_unref(cell)) return;
	if (!may_be_kept(cell, wish)) {
		usmb_cell_push(cell);
		return;
	}
	deduct();
	/* Of what is kept nobody may want anything any more. */
	if (kept_bytes + cell->size > KEEP_BYTES) usmb_kept_clear();
	struct set *s = set_of(cell->requested, wish);
	int at = 0;
	while (at < WAYS && atomic_load_explicit(&s->cells[at], memory_order_relaxed)) at++;
	if (at == WAYS) {
		at = (int)(s->oldest++ % WAYS);
		usmb_cell *old = take_at(s, at);
		if (old) usmb_cell_push(old);
	}
	kept_bytes += cell->size;
	kept_cells++;
	s->requested[at] = cell->requested;
	s->wishes[at] = wish;
	atomic_store_explicit(&s->cells[at], cell, memory_order_release);
}

int usmb_kept_clear(void)
{
	int any = 0;
	for (int i = 0; i < SETS; i++)
		for (int k = 0; k < WAYS; k++) {
			if (!atomic_load_explicit(&sets[i].cells[k], memory_order_relaxed)) continue;
			usmb_cell *cell = atomic_exchange_explicit(&sets[i].cells[k], NULL, memory_order_acq_rel);
			if (!cell) continue;
			atomic_fetch_add_explicit(&gone_bytes, cell->size, memory_order_relaxed);
			atomic_fetch_add_explicit(&gone_cells, 1, memory_order_release);
			usmb_cell_push(cell);
			any = 1;
		}
	return any;
}
