/* What the Go side sets for allocations of USM. Private to this package. */
#ifndef USMB_SYCL_USM_H
#define USMB_SYCL_USM_H

/* From now on one thread at a time allocates or frees USM: for drivers where two may not. */
void usmb_usm_alone(void);

#endif
