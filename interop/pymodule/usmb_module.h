/*
 * usmb_module.h: the module, its type Array, and what it asks of Go.
 */
#ifndef USMB_MODULE_H
#define USMB_MODULE_H

#include "usmb_support.h"

int usmb_array_register(PyObject *module);

/* The module's init function, and its version text, set by Go first. */
PyObject *usmb_pymod_init(void);
extern char usmb_pymod_version[64];

/* Where Python looks for packages, one directory a line: its own dpctl is the one
   to use. */
int usmb_go_paths(char *lines, uint64_t n, usmb_goerr *err);

/* The elements of a host-readable array as NumPy prints them; *out is freed with
   free. prefix: characters before the first bracket. */
int usmb_go_text(usmb_dl_tensor *t, int32_t padded, int32_t prefix, char **out, usmb_goerr *err);

/* Trims all pools; *bytes: what they gave back. */
void usmb_go_trim(uint64_t *bytes);
/* Bounds what the shared pools have from the system, together; 0 is no bound. */
int usmb_go_set_limit(uint64_t bytes, usmb_goerr *err);

/* One counter; the array is freed with free. */
typedef struct {
	char name[120];
	int64_t value;
} usmb_stat;
int usmb_go_stats(usmb_stat **out, int64_t *n, usmb_goerr *err);

/* The report of usminfo; *out is freed with free. version, executable, prefix: of the
   Python that asks. */
int usmb_go_info(int32_t json, char *version, char *executable, char *prefix, char **out, usmb_goerr *err);

/* Waits, without the GIL, until nothing of ours is draining Python's list. */
void usmb_go_stop(void);

#endif
