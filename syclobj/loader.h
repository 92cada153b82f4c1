/* Loading libDPCTLSyclInterface.so. Private to this package; used by load_linux.go. */
#ifndef USMB_SYCL_LOADER_H
#define USMB_SYCL_LOADER_H

#include <stddef.h>

enum {
	USMB_LOAD_OK = 0,
	USMB_LOAD_OPEN,  /* dlopen failed; text in err */
	USMB_LOAD_SYMBOL /* the library lacks a symbol; its name in err */
};

/*
 * Finds the path of the first shared object of this process whose file name starts with prefix. Returns 1
 * if found, else 0. An empty name (the program itself) never matches.
 */
int usmb_load_find(const char *prefix, char *path, size_t n);

/*
 * Writes the directories in which the loader searches libraries without a path, joined by ':'; empty if
 * unknown. The directories of the loader's cache are not included.
 */
void usmb_load_path(char *dirs, size_t n);

/*
 * Loads the library at path (or, without a slash, by the loader's search), fills the table of functions
 * and marks it ready. Dependencies that the loader does not find are loaded from dir, unless that is
 * empty. The real path is written to real. Once the table is filled the library is never unloaded, and
 * further calls do nothing.
 */
int usmb_load_open(const char *path, const char *dir, char *real, size_t nreal, char *err, size_t nerr);

/* Returns 1 if the process had loaded the library, or SYCL, before usmb_load_open. */
int usmb_load_adopted(void);

/*
 * Loads one more library, and its dependencies from dir, for later libraries that need it by name. A
 * failure is not reported: loading those libraries fails then.
 */
void usmb_load_extra(const char *path, const char *dir);

#endif
