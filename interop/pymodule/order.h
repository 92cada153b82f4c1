/* order.h: the order of device work on the memory of arrays. */
#ifndef USMB_PYMODULE_ORDER_H
#define USMB_PYMODULE_ORDER_H

#include "array.h"

/* The facts about an array that its memory has recorded: usmb_array.noted. */
enum { USMB_QUEUE_NOTED = 1, USMB_ADDRESS_NOTED = 2, USMB_EXPORT_NOTED = 4, USMB_LENT_NOTED = 8 };

/* The longest time in seconds that a fork takes the locks of computations and waits for device work. */
enum { USMB_FORK_LIMIT = 10 };
/* Waits, with the GIL dropped, for our work pending on the memory, for the queue of the array, and for all
   queues on which other libraries may have unreported work on the memory. Call it before reading or writing
   elements. */
int usmb_array_wait(usmb_array *a);
/* The same for a consumer on a stream of CUDA: it, instead of the host, waits for the work of libraries of CUDA. */
int usmb_array_wait_for_stream(usmb_array *a, uintptr_t stream);
/* The same as usmb_array_wait for callers whose exception the consumer may discard, as NumPy does that of the buffer protocol: a
   failure stays on the memory, and the next wait raises it again. */
int usmb_array_wait_keeping(usmb_array *a);
/* 0 for USMB_SYCL_OK; -1 with the RuntimeError of a wait that failed with another code. */
int usmb_wait_result(int code);
/* The same as usmb_array_wait for a cell that the caller retains. */
int usmb_cell_wait(usmb_cell *cell);
/* The function _wait_at(first, end) of the module: the same for USM at an address, if there is some. */
PyObject *usmb_py_wait_at(PyObject *m, PyObject *const *args, Py_ssize_t n);
/* The same without the default queue that users see: for exports, whose consumers work on that queue. */
int usmb_array_wait_known(usmb_array *a);
/* The same as usmb_array_wait without our own pending work: for exports that pass on its event. */
int usmb_array_wait_shared(usmb_array *a);
/* Calls add for each queue on which other libraries may have unreported work on the memory of a cell, which the caller
   retains. -1 with an exception. */
int usmb_cell_each_queue(usmb_cell *cell, int (*add)(void *queue, void *arg), void *arg);
/* Orders later work on queue behind the work for which usmb_array_wait waits. If it cannot be ordered,
   waits for it. */
int usmb_array_order(usmb_array *a, void *queue);

/* Prepares an array in USM for a computation by dpnp on its queue: waits as usmb_array_wait, except for dpnp's work on the queue
   and for work behind which the queue puts dpnp's, and records that the memory is used. dpnp keeps the memory alive while
   it computes. */
int usmb_array_use(usmb_array *a);
/* Ends a computation of dpnp with an array: waits for dpnp's work if the memory is observed (usmb_cell_observe). */
int usmb_array_end_use(usmb_array *a);
/* Waits for all work on the queue of an array in USM, and for all of dpnp's, before a call of dpnp that would wait for tasks of
   them with the GIL held. */
int usmb_array_settle_queue(usmb_array *a);
/* Records that the memory was exported to a consumer of any queue: it is reused only behind barriers. */
int usmb_array_note_export(usmb_array *a);
static inline int usmb_array_exported(usmb_array *a)
{
	if (!a->cell->place || a->noted & USMB_EXPORT_NOTED) return 0;
	return usmb_array_note_export(a);
}
/* Records that the host got the address of the elements (usmb_cell_lend). */
int usmb_array_note_lent(usmb_array *a);
static inline int usmb_array_lent(usmb_array *a)
{
	if (!usmb_cell_record(a->cell)->place || a->noted & USMB_LENT_NOTED) return 0;
	return usmb_array_note_lent(a);
}
/* Takes a reference of the memory for a consumer, and returns the function that drops it. on_host: the consumer reads it on
   the host, so that it observes the memory if that is USM. */
static inline usmb_drop_fn usmb_array_share(usmb_array *a, int on_host)
{
	usmb_cell_retain(a->cell);
	if (!on_host || !usmb_cell_record(a->cell)->place) return usmb_cell_drop;
	usmb_cell_observe(a->cell);
	return usmb_cell_drop_observed;
}
/* The same as usmb_array_exported for consumers of CUDA, which use no queue. From then on all accesses to exported memory of
   the same place wait for CUDA (usmb_cuda_show). */
int usmb_array_note_cuda(usmb_array *a);
/* Records that consumers have the address of the elements and may submit work on the memory, without
   reporting it, to the queue that users see for the array. */
int usmb_array_address_shown(usmb_array *a);
/* The same for consumers that have the queue only. */
int usmb_array_seen_on_queue(usmb_array *a);
/* The same for a queue that a consumer named, which must be in the context of the memory. */
int usmb_array_seen_on(usmb_array *a, void *queue);
/* Records the queue, which may be NULL, of an array that was just made on a cell. Another array on the
   same memory may have another queue. */
int usmb_array_imported_on_queue(usmb_array *a);
/* Makes Go know the queues of memory that belongs to Python. */
int usmb_array_tell_go(usmb_array *a);

/* ---- Go ---- */

/* Records a queue (Buffer.SharedOn). */
int usmb_go_shared_on(usmb_cell *cell, void *queue);
typedef struct {
	void **refs; /* NULL if n is 0 */
	size_t n;
} usmb_recorded_queues;

/* Returns the queues that Go has recorded, without the default queues of the place. Delete the references and free
   the array. *out must be zero; it stays so after an error. */
int usmb_go_shared_queues(usmb_cell *cell, usmb_recorded_queues *out, usmb_goerr *err);

#endif
