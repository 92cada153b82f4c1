/*
 * A guard for mappings of files that others can cut off. Touching a page that the file does
 * not have any more raises SIGBUS; inside a guarded range the handler puts zeros there and
 * notes it, and the touch succeeds. Linux.
 */
#ifndef USMB_GUARD_H
#define USMB_GUARD_H

#include <stddef.h>
#include <stdint.h>

enum { USMB_GUARD_MOST = 4096 }; /* ranges at a time */

/*
 * Guards [base, base + size), whole pages of the caller's, mapped with PROT_READ, and
 * PROT_WRITE too where writable. Returns the number of the range, -1 when there are too many
 * (ENOSPC) and when the handler cannot be installed (errno). Any thread.
 */
int usmb_guard_add(uintptr_t base, size_t size, int writable);
/*
 * Ends the guarding of a range that add gave; nobody may touch it any more. When it returns,
 * no handler is at work in it. Any thread, once for each range.
 */
void usmb_guard_remove(int range);
/* Whether a page of the range was lost. Any thread. */
int usmb_guard_lost(int range);
/*
 * Puts the handler back where another was installed over it since; that one is called for
 * faults outside of guarded ranges from then on. 0, or an errno. Any thread.
 */
int usmb_guard_keep(void);

#endif
