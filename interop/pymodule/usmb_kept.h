/*
 * usmb_kept.h: memory that arrays gave back, for the next arrays of the same size.
 */
#ifndef USMB_KEPT_H
#define USMB_KEPT_H

#include "usmb_owner.h"
#include "usmb_pyapi.h"
#include "usmb_sycl.h"

/*
 * Most new arrays have the size of one that has just gone. Entering Go for both costs
 * more than all the rest; a few blocks of the shared pools therefore stay here. They are
 * dead for everybody else: no handle to them is valid, and live_buffers does not count
 * them. To their pool they are in use, so whoever reads, trims or closes the pools, in
 * Python or in Go (memmgr.AddCache), has them given back first. Bounded in number and in
 * bytes. All but usmb_kept_clear under the GIL.
 */

/* What was asked for beside the size: the default device (kind 0 to 3), or the host's. */
typedef uint32_t usmb_wish;
static inline usmb_wish usmb_wish_of(int kind, int host)
{
	return (uint32_t)kind | (host ? 4u : 0u);
}

/* A cell with one reference for that many bytes; NULL when none is kept. */
usmb_cell *usmb_kept_take(uint64_t bytes, usmb_wish wish);
/* Tells of a cell that Go has just made for a wish, and may be kept later. */
void usmb_kept_note(usmb_cell *cell, usmb_wish wish);
/* Whether the memory that Go makes for a wish lies there, as far as it has made any. */
int usmb_kept_lies_at(usmb_wish wish, const usmb_place *place);
/* Drops a reference to a cell that was noted; the last one keeps it, where its memory is
   as it was when it was made. */
void usmb_kept_drop(usmb_cell *cell, usmb_wish wish);
/* Gives all back to their pools; 1 when there were any. On any thread. */
int usmb_kept_clear(void);

#endif
