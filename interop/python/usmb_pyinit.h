/*
 * usmb_pyinit.h: opening libpython, starting the interpreter, being `python3`.
 */
#ifndef USMB_PYINIT_H
#define USMB_PYINIT_H

#include "usmb_pystate.h"

/* dlopen(path, RTLD_NOW | RTLD_GLOBAL); NULL and dlerror's text in err. */
void *usmb_py_open(const char *path, char *err, size_t n);

/* 1 when the process's global symbols hold a CPython. */
int usmb_py_in_process(void);

/* Initialises Python on this thread as if `program` (an absolute path, in two
   encodings) had been started, without signal handlers, and gives the GIL up.
   0, or -1 and the reason in err. */
int usmb_py_initialize(const char *program, const wchar_t *wide_program, char *err, size_t n);

/* For a process that is Python already: installs the hooks, taking the GIL. */
int usmb_py_adopt_running(char *err, size_t n);

/*
 * Runs the python3 command line on this thread, which must be the process's first,
 * and then the C library's exit: it does not return. argv[0] is the environment's
 * python, host the program that multiprocessing starts for its children once a
 * built-in module of ours has been imported (NULL: argv[0] too), and children the
 * source text of children.py, which sees to that. Both are kept.
 */
void usmb_py_main(int argc, char **argv, const char *host, const char *children);

/* For Go, which cannot call function pointers. */
int usmb_pyx_initialized(void); /* Py_IsInitialized of a loaded table */
int usmb_pyx_add_module(const char *name, void *init);
int usmb_pyx_thread_id(void); /* of the calling thread; the process id on its first */

#endif /* USMB_PYINIT_H */
