/* C functions for the tests. */
#ifndef USMB_OWNERTEST_HELPERS_H
#define USMB_OWNERTEST_HELPERS_H

#include "usmb_owner.h"

typedef struct usmb_test_layout {
	size_t cell[20];
	size_t list[6];
	size_t control[9];
	uint32_t flags[16];
	uint32_t layout;
} usmb_test_layout;

usmb_test_layout usmb_test_offsets(void);

/* Drops every cell once, spread over threads. 0, or an errno value. */
int usmb_test_drop_on_threads(usmb_cell **cells, size_t n, int threads);
/* Each thread makes and drops n cells; returns how many were made. */
size_t usmb_test_churn(usmb_list *list, size_t n, int threads);
/* An at_zero that adds the cell's ctx to a sum, and the sum. */
void *usmb_test_count_zero(void);
int64_t usmb_test_zero_sum(void);
/* Finishes n cells with an at_zero as they are pushed on the list. */
void usmb_test_run_list(usmb_list *list, size_t n);
/* Forks; the child drops the cell and uses lists. 0 when all went well there. */
int usmb_test_drop_in_fork(usmb_cell *cell);

#endif
