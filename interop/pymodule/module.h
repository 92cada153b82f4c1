/*
 * module.h: the functions that the tables of the type Array and of the module refer to, and the
 * functions of Go that the module calls.
 */
#ifndef USMB_PYMODULE_MODULE_H
#define USMB_PYMODULE_MODULE_H

#include <stdint.h>

#include "support.h"
#include "array.h"
#include "handover.h"
#include "usmb_pyapi.h"

/* ---- index ---- */

PyObject *usmb_array_subscript(PyObject *self, PyObject *key);
PyObject *usmb_array_reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *usmb_array_transpose(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_array_T(PyObject *self, void *closure);

/* ---- assign ---- */

int usmb_array_assign(PyObject *self, PyObject *key, PyObject *value); /* mp_ass_subscript */
int usmb_array_assign_item(PyObject *self, Py_ssize_t i, PyObject *value);
PyObject *usmb_array_fill(PyObject *self, PyObject *value);

/* ---- pickle ---- */

PyObject *usmb_array_reduce(PyObject *self, PyObject *protocol); /* __reduce_ex__ */
PyObject *usmb_py_unpickle(PyObject *m, PyObject *const *args, Py_ssize_t n);
PyObject *usmb_py_bytes_of(PyObject *m, PyObject *o);
PyObject *usmb_py_of_buffer(PyObject *m, PyObject *o);
PyObject *usmb_py_of_swapped(PyObject *m, PyObject *o);
PyObject *usmb_py_of_bytes(PyObject *m, PyObject *args);

/* ---- share ---- */

/* Times are nanoseconds; a negative time means no limit. Results in *out are freed with free. Each
   function returns 0, or -1 and *err, and needs no GIL. The functions that wait for another process handle
   Python's signals meanwhile; saved is the thread state of the calling thread. */

/* Handles signals for a thread that dropped the GIL. -1: a handler raised an exception, which is set in its
   thread state. */
int usmb_py_signals(PyThreadState *saved);
/* Makes a handle of an array; *out is NULL for memory that other processes cannot map. */
int usmb_go_share_export(usmb_array *a, int64_t time, PyThreadState *saved, char **out, int64_t *n, usmb_goerr *err);
/* Ends a handle that was not opened. If its maker is another process, it waits for that. */
void usmb_go_share_revoke(char *handle, int64_t n);
/* Open a handle, or an array that a server publishes. *out has a reference for the caller. */
int usmb_go_share_open(char *handle, int64_t n, int32_t usm, int64_t time, PyThreadState *saved, usmb_handover *out,
                       usmb_goerr *err);
/* With sequence, waits for an array with a number above *sequence, and stores its number. */
int usmb_go_share_attach(char *address, int64_t naddress, char *name, int64_t nname, int64_t time, PyThreadState *saved,
                         uint64_t *sequence, usmb_handover *out, usmb_goerr *err);
/* The names of the arrays that a server publishes: n names, each after its length in 8 bytes. */
int usmb_go_share_names(char *address, int64_t naddress, int64_t time, PyThreadState *saved, char **out, int64_t *n,
                        usmb_goerr *err);
/* Starts a server: its number, and the address on which it listens. */
int usmb_go_share_listen(char *address, int64_t naddress, int64_t time, PyThreadState *saved, int64_t *limits,
                         uint64_t *number, char **out, int64_t *n, usmb_goerr *err);
int usmb_go_share_publish(uint64_t number, char *name, int64_t nname, usmb_array *a, int64_t time, PyThreadState *saved,
                          usmb_goerr *err);
int usmb_go_share_withdraw(uint64_t number, char *name, int64_t nname, usmb_goerr *err);
int usmb_go_share_close(uint64_t number, usmb_goerr *err);
/* Revokes handles when the process pid ends, if they were not opened. handles has each handle after
   its length as a uint32_t. */
int usmb_go_share_end_with(int64_t pid, char *handles, int64_t n, usmb_goerr *err);
/* The limits of a server: peers, leases, segments, names, queued bytes; 0 means the default. */
enum { USMB_SHARE_LIMITS = 5 };

/* The functions _share_* of the module. */
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

/* ---- numba ---- */

/* Adds the addresses of both functions to the module. */
int usmb_numba_register(PyObject *module);

/* ---- package ---- */

/* Adds a file of the package, before Python starts. name and data are kept; data is terminated with
   a zero byte after size. The first file is the importer, which makes the package from the others.
   -1 if there are too many. */
int usmb_package_add(const char *name, const char *data, size_t size);

/* The init function of the built-in module. */
PyObject *usmb_package_init(void);

/* ---- module ---- */

int usmb_array_register(PyObject *module);

/* The init function of the C module, and its version, which Go sets before. */
PyObject *usmb_pymod_init(void);
extern char usmb_pymod_version[64];

/* Passes sys.path, one directory a line, in which Go finds the program's dpctl. */
int usmb_go_paths(char *lines, uint64_t n, usmb_goerr *err);

/* The elements of an array in the format of NumPy, for the text "Array(...)"; free *out with free. */
int usmb_go_text(usmb_array *a, char **out, usmb_goerr *err);

/* Trims all pools; *bytes: the bytes freed. */
void usmb_go_trim(uint64_t *bytes);
/* Sets the limit for the memory of all shared pools together; 0 means none. */
int usmb_go_set_limit(uint64_t bytes, usmb_goerr *err);

/* The report of usminfo; free *out with free. version, executable and prefix are those of the
   running Python. */
int usmb_go_info(int32_t json, char *version, char *executable, char *prefix, char **out, usmb_goerr *err);

/* Waits, without the GIL, until no goroutine drains Python's list. */
void usmb_go_stop(void);

#endif
