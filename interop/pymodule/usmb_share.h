/*
 * usmb_share.h: arrays that go to other processes and come from them. What
 * usmbridge.share and usmbridge._processes stand on.
 */
#ifndef USMB_SHARE_H
#define USMB_SHARE_H

#include "usmb_array.h"
#include "usmb_handover.h"
#include "usmb_support.h"

/* Times are nanoseconds, less than 0 for ever. What a function gives in *out is freed with
   free. Each returns 0, or -1 and *err, without the GIL. */

/* The handle of an array: *out is NULL for memory that nobody else can map. */
int usmb_go_share_export(usmb_array *a, int64_t time, char **out, int64_t *n, usmb_goerr *err);
/* Opens a handle, or what a server publishes: *out has a reference for the caller. */
/* Ends a handle that nobody opened; waits for its maker where that is another process. */
void usmb_go_share_revoke(char *handle, int64_t n);
int usmb_go_share_open(char *handle, int64_t n, int32_t usm, int64_t time, usmb_handover *out, usmb_goerr *err);
int usmb_go_share_attach(char *address, int64_t naddress, char *name, int64_t nname, int64_t time, usmb_handover *out,
                         usmb_goerr *err);
/* What a server publishes: n names, each with a byte of zero behind it. */
int usmb_go_share_names(char *address, int64_t naddress, int64_t time, char **out, int64_t *n, usmb_goerr *err);
/* A server, its number, and where it listens. */
int usmb_go_share_listen(char *address, int64_t naddress, int64_t time, uint64_t *number, char **out, int64_t *n,
                         usmb_goerr *err);
int usmb_go_share_publish(uint64_t number, char *name, int64_t nname, usmb_array *a, int64_t time, usmb_goerr *err);
int usmb_go_share_withdraw(uint64_t number, char *name, int64_t nname, usmb_goerr *err);
int usmb_go_share_close(uint64_t number, usmb_goerr *err);
/* Handles in a row, each behind its length as a uint32_t: what is unopened of them when a process ends, ends. */
int usmb_go_share_end_with(int64_t pid, char *handles, int64_t n, usmb_goerr *err);
/* peers, unopened, leases, opened, mapped, mapped_bytes */
enum { USMB_SHARE_STATS = 6 };
void usmb_go_share_stats(int64_t *out);

/* The functions _share_… of the module. */
PyObject *usmb_py_share_export(PyObject *m, PyObject *args);
PyObject *usmb_py_share_revoke(PyObject *m, PyObject *bytes);
PyObject *usmb_py_share_open(PyObject *m, PyObject *args);
PyObject *usmb_py_share_attach(PyObject *m, PyObject *args);
PyObject *usmb_py_share_names(PyObject *m, PyObject *args);
PyObject *usmb_py_share_listen(PyObject *m, PyObject *args);
PyObject *usmb_py_share_publish(PyObject *m, PyObject *args);
PyObject *usmb_py_share_withdraw(PyObject *m, PyObject *args);
PyObject *usmb_py_share_close(PyObject *m, PyObject *args);
PyObject *usmb_py_share_end_with(PyObject *m, PyObject *args);
PyObject *usmb_py_share_stats(PyObject *m, PyObject *unused);

#endif
