/*
 * usmb_pyinit.h: opening libpython, built-in modules, starting the interpreter and the
 * python3 command line.
 */
#ifndef USMB_PYINIT_H
#define USMB_PYINIT_H

#include "usmb_pystate.h"

/* Returns the handle of the library, or NULL with the text of dlerror in err. */
void *usmb_py_open(const char *path, char *err, size_t n);

/* Reports whether the process's global symbols include a CPython. */
int usmb_py_in_process(void);

/* Registers a built-in module before initialisation. init is the address of its
   function PyInit_name. Keeps name and init. Returns 0, or -1 if the name is registered
   with another function, there are too many modules or Python is initialised. */
int usmb_py_add_module(const char *name, void *init);

/* Initialises Python on this thread as the program (an absolute path, in two encodings)
   does, without signal handlers, and releases the GIL. Keeps wide_program. Returns 0, or
   -1 with the reason in err. */
int usmb_py_initialize(const char *program, const wchar_t *wide_program, char *err, size_t n);

/* Acquires the GIL of a process that runs Python already and calls usmb_py_install.
   Returns 0, or -1 with the reason in err. */
int usmb_py_adopt_running(char *err, size_t n);

/*
 * Runs the python3 command line on this thread, which must be the main thread, and then
 * exit. It does not return. argv[0] is the environment's python. host is the program that
 * multiprocessing starts for its children after the import of a registered module (NULL:
 * argv[0]). children is the source text of children.py, which sets that program. host and
 * children must stay valid.
 */
void usmb_py_main(int argc, char **argv, const char *host, const char *children);

/* Reports whether the table is loaded and Python is initialised. */
int usmb_py_initialized(void);

/* Returns the id of the calling thread. That of the main thread is the process id. */
int usmb_py_thread_id(void);

#endif /* USMB_PYINIT_H */
