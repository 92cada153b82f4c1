/*
 * A guard for mappings of files that another process can truncate. Access to a truncated page
 * raises SIGBUS. In a guarded range the handler maps zero pages, marks the range as lost, and the
 * access succeeds. Linux only. All functions may be called from any thread.
 */
#ifndef USMB_GUARD_H
#define USMB_GUARD_H

#include <stddef.h>
#include <stdint.h>

enum { USMB_GUARD_MOST = 4096 }; /* largest number of ranges */

/*
 * Guards [base, base + size), whole pages that the caller mapped with PROT_READ, and with
 * PROT_WRITE if writable is not 0. Returns the number of the range. Returns -1 and sets errno if
 * there are too many ranges (ENOSPC) or if the handler cannot be installed.
 */
int usmb_guard_add(uintptr_t base, size_t size, int writable);
/*
 * Removes a range that add returned, once. The caller no longer accesses the memory. When it
 * returns, no handler uses the range.
 */
void usmb_guard_remove(int range);
/* Returns 1 if a page of the range was replaced by zeros. */
int usmb_guard_lost(int range);
/*
 * Installs the handler again if another one replaced it. The other handler is called for faults
 * outside guarded ranges from then on. Returns 0 or an errno.
 */
int usmb_guard_keep(void);

#endif
