/* array.c: the life, layout and views of arrays. Their Python type is in array_type.c. */
#include <string.h>

#include "array.h"
#include "storage.h"
#include "support.h"
#include "sycl.h"

PyTypeObject *usmb_array_type;

/* Freed arrays of few dimensions, for reuse: most arrays live for one hand-over only. Guarded by
   the GIL. */
enum { KEEP_NDIM = 4, KEEP_MAX = 64 };
static usmb_array *kept[KEEP_MAX];
static int nkept;

usmb_array *usmb_array_raw(int32_t ndim)
{
	usmb_array *a;
	int fresh = 0;
	if (ndim <= KEEP_NDIM && nkept > 0) {
		a = kept[--nkept];
	} else {
		int32_t room = ndim < KEEP_NDIM ? KEEP_NDIM : ndim;
		a = (usmb_array *)_PyObject_GC_NewVar(usmb_array_type, 2 * (Py_ssize_t)room);
		if (!a) return NULL;
		fresh = 1;
	}
	if (!fresh) PyObject_Init((PyObject *)a, usmb_array_type);
	a->ob_base.ob_size = 2 * ndim;
	a->cell = NULL;
	a->queue = NULL;
	a->ndim = ndim;
	a->flags = a->sharers = a->holds = a->tracked = a->shown = a->noted = 0;
	a->root = NULL;
	a->weak = NULL;
	a->peer = NULL;
	return a;
}

/* ---- cycles ---------------------------------------------------------------------- */

static void join_root(usmb_array *a, usmb_array *root)
{
	root->sharers++;
	a->root = (usmb_array *)Py_NewRef(root);
}

/* Registers an array with the collector if its memory belongs to a Python object. Other arrays
   cannot be in a cycle. */
static void track(usmb_array *a)
{
	if (!usmb_owned_by_python(a->cell) || !usmb_cell_object(a->cell)) return;
	usmb_array *root = usmb_cell_root(a->cell);
	if (root) {
		join_root(a, root);
	} else {
		usmb_cell_set_root(a->cell, a);
		a->sharers = 1;
	}
	a->tracked = 1;
	PyObject_GC_Track(a);
}

/* Unregisters an array that is about to drop its cell. */
static void untrack(usmb_array *a)
{
	if (!a->tracked) return;
	a->tracked = 0;
	PyObject_GC_UnTrack(a);
	if (usmb_cell_root(a->cell) == a) usmb_cell_set_root(a->cell, NULL);
}

/* Removes an array from the sharers of its root. */
static void leave_root(usmb_array *a)
{
	usmb_array *root = a->root;
	a->root = NULL;
	if (!root) return;
	root->sharers--;
	Py_DECREF(root);
}

int usmb_array_traverse(PyObject *self, int (*visit)(PyObject *, void *), void *arg)
{
	usmb_array *a = (usmb_array *)self;
	int r = visit((PyObject *)Py_TYPE(self), arg);
	if (r == 0 && a->root) r = visit((PyObject *)a->root, arg);
	if (r != 0 || !a->tracked || a->root || usmb_cell_count(a->cell) != a->sharers) return r;
	PyObject *o = usmb_cell_object(a->cell);
	return o ? visit(o, arg) : 0;
}

/* The collector clears an array only if the consumers of its address are unreachable too,
   so their hold ends here; otherwise it would keep the cycle alive. */
int usmb_array_clear(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	usmb_array_release(a);
	if (a->shown) {
		a->shown = 0;
		usmb_array_unhold(a);
	}
	return 0;
}

/* ---- release ---------------------------------------------------------------------- */

/* The memory of released arrays: empty, so that a stray read stays in bounds. Its count never
   reaches zero. */
usmb_cell usmb_no_memory = {.word = 1u << 30};
static char no_bytes[16];

/* Drops an array's reference of its cell. flags are those of the array. */
static void drop_cell(usmb_cell *cell, uint32_t flags)
{
	if (flags & USMB_ARR_KEEP)
		usmb_kept_drop(cell, flags >> USMB_ARR_WISH);
	else
		usmb_cell_drop_gil(cell);
}

void usmb_array_drop_memory(usmb_array *a)
{
	usmb_cell *cell = a->cell;
	uint32_t flags = a->flags;
	untrack(a);
	a->cell = &usmb_no_memory;
	a->first = no_bytes;
	a->nelem = 0;
	a->flags = USMB_ARR_RELEASED | USMB_ARR_READONLY;
	memset(a->dims, 0, 2 * (size_t)a->ndim * sizeof *a->dims);
	if (a->queue) usmb_array_name_queue(a, NULL);
	if (cell != &usmb_no_memory) drop_cell(cell, flags);
	leave_root(a);
}

int usmb_array_released(void)
{
	usmb_raise(PyExc_ValueError, "the array was released; its views and exports stay valid");
	return 0;
}

int usmb_array_received(void)
{
	if (!usmb_py_in_child()) return 1;
	usmb_raise(PyExc_RuntimeError,
	           "the array is memory of another process, and a forked process cannot map it or use its parent's "
	           "mapping; start the process by multiprocessing's \"spawn\" or \"forkserver\", or send it a copy: "
	           "a.copy()");
	return 0;
}

PyObject *usmb_array_unreachable(void)
{
	usmb_array *a = usmb_array_raw(0);
	if (!a) return NULL;
	a->cell = &usmb_no_memory;
	a->first = no_bytes;
	a->nelem = 0;
	a->dtype = (usmb_dl_dtype){USMB_DL_UINT, 8, 1};
	a->itembits = 8;
	a->flags = USMB_ARR_RECEIVED | USMB_ARR_INTERPROCESS | USMB_ARR_READONLY;
	return (PyObject *)a;
}

void usmb_array_release(usmb_array *a)
{
	if (a->flags & USMB_ARR_RELEASED) return;
	a->flags |= USMB_ARR_RELEASED;
	if (a->holds == 0) usmb_array_drop_memory(a);
}

/* ---- life -------------------------------------------------------------------------- */

void usmb_array_name_queue(usmb_array *a, PyObject *queue)
{
	PyObject *old = a->queue;
	a->queue = queue;
	/* Destroying a queue calls SYCL, which a forked child must not. */
	if (old && !usmb_py_in_child()) Py_DECREF(old);
}

void usmb_array_dealloc(PyObject *self)
{
	usmb_array *a = (usmb_array *)self;
	PyTypeObject *type = Py_TYPE(self);
	untrack(a);
	if (a->weak) PyObject_ClearWeakRefs(self);
	if (a->cell && a->cell != &usmb_no_memory) drop_cell(a->cell, a->flags);
	leave_root(a);
	/* Destroying dpnp's array can call SYCL, which a forked child must not. */
	if (a->peer && !usmb_py_in_child()) Py_DECREF(a->peer);
	if (a->queue) usmb_array_name_queue(a, NULL);
	usmb_owner_drain();
	if (a->ndim <= KEEP_NDIM && nkept < KEEP_MAX)
		kept[nkept++] = a;
	else
		PyObject_GC_Del(a);
	Py_DECREF(type);
}

uint32_t usmb_item_bits(usmb_dl_dtype dtype, uint32_t flags)
{
	if (dtype.bits < 8 && (flags & USMB_ARR_PADDED)) return 8;
	return dtype.bits;
}

void usmb_fill_strides(int32_t ndim, const int64_t *shape, int64_t *strides, int fortran)
{
	int64_t step = 1;
	for (int32_t k = 0; k < ndim; k++) {
		int32_t i = fortran ? k : ndim - 1 - k;
		strides[i] = step;
		if (shape[i] > 0) step *= shape[i];
	}
}

/* Strides of axes with one element do not matter, and an array without elements is contiguous in
   every order. The products are unsigned: they overflow only in arrays without elements, where they
   are not used. */
static uint32_t contiguity(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	uint32_t flags = USMB_ARR_C | USMB_ARR_F;
	uint64_t c = 1, f = 1;
	for (int32_t i = ndim - 1; i >= 0; i--) {
		if (shape[i] == 0) return USMB_ARR_C | USMB_ARR_F;
		if (shape[i] != 1 && (uint64_t)strides[i] != c) flags &= ~(uint32_t)USMB_ARR_C;
		c *= (uint64_t)shape[i];
	}
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] != 1 && (uint64_t)strides[i] != f) flags &= ~(uint32_t)USMB_ARR_F;
		f *= (uint64_t)shape[i];
	}
	return flags;
}

static uint32_t memory_flags(const usmb_cell *cell, uint32_t extra)
{
	uint32_t cellflags = atomic_load_explicit(&cell->flags, memory_order_relaxed);
	uint32_t flags = extra & (USMB_ARR_READONLY | USMB_ARR_PADDED | USMB_ARR_MEMORY);
	if (cellflags & USMB_CELL_READONLY) flags |= USMB_ARR_READONLY;
	if (!cell->place || ((usmb_place *)cell->place)->host_readable) flags |= USMB_ARR_READ;
	return flags;
}

void usmb_array_settle_as(usmb_array *a, usmb_cell *cell, usmb_dl_dtype dtype, uint32_t extra, const usmb_dl_span *span)
{
	uint32_t flags = memory_flags(cell, extra);
	if (span->contig & USMB_DL_C_CONTIGUOUS) flags |= USMB_ARR_C;
	if (span->contig & USMB_DL_F_CONTIGUOUS) flags |= USMB_ARR_F;
	a->cell = cell;
	a->first = span->first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = span->nelem;
	a->itembits = span->itembits;
	track(a);
}

void usmb_array_settle(usmb_array *a, usmb_cell *cell, char *first, usmb_dl_dtype dtype, uint32_t extra)
{
	uint32_t flags = memory_flags(cell, extra) | contiguity(a->ndim, usmb_shape(a), usmb_strides(a));
	uint64_t n = 1; /* unsigned: see contiguity */
	for (int32_t i = 0; i < a->ndim; i++) n *= (uint64_t)usmb_shape(a)[i];
	a->cell = cell;
	a->first = first;
	a->dtype = dtype;
	a->flags = flags;
	a->nelem = (int64_t)n;
	a->itembits = usmb_item_bits(dtype, flags);
	track(a);
}

PyObject *usmb_array_view_as(usmb_array *src, usmb_dl_dtype dtype, uint32_t extra, char *first, int32_t ndim,
                             const int64_t *shape, const int64_t *strides)
{
	if (src->cell == &usmb_no_memory && !usmb_array_alive(src)) return NULL;
	/* Creating an array can run the collector, and code that releases src. */
	usmb_array_hold(src);
	usmb_array *a = usmb_array_laid_out(ndim, shape, strides);
	if (a) {
		usmb_cell_retain(src->cell);
		usmb_array_settle(a, src->cell, first, dtype,
		                  extra | (src->flags & (USMB_ARR_READONLY | USMB_ARR_MEMORY)));
		if (src->queue) a->queue = Py_NewRef(src->queue);
		if (!a->tracked) join_root(a, src->root ? src->root : src);
	}
	usmb_array_unhold(src);
	return (PyObject *)a;
}

PyObject *usmb_array_view(usmb_array *src, char *first, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
	return usmb_array_view_as(src, src->dtype, src->flags, first, ndim, shape, strides);
}

PyObject *usmb_array_alone(usmb_array *a)
{
	usmb_array *view = (usmb_array *)usmb_array_view(a, a->first, a->ndim, usmb_shape(a), usmb_strides(a));
	if (view && !view->tracked) leave_root(view);
	return (PyObject *)view;
}

void usmb_array_range(usmb_array *a, int64_t *lo, int64_t *hi)
{
	int64_t down = 0, up = 0;
	*lo = *hi = 0;
	if (a->nelem == 0) return;
	for (int32_t i = 0; i < a->ndim; i++) {
		int64_t reach = (usmb_shape(a)[i] - 1) * usmb_strides(a)[i];
		if (reach < 0)
			down += reach;
		else
			up += reach;
	}
	int64_t bits = a->itembits;
	*lo = (down * bits) >> 3; /* packed elements: down to the whole byte */
	*hi = ((up + 1) * bits + 7) / 8;
}
