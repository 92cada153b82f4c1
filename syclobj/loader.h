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
 * Path of the first shared object of this process whose file name starts with
 * prefix; 1 found, 0 not. An empty name (the program itself) never matches.
 */
int usmb_load_find(const char *prefix, char *path, size_t n);

/*
 * The directories in which the loader looks for a library without a path, joined
 * by ':'; empty where it does not tell. Those of its cache are not among them.
 */
void usmb_load_path(char *dirs, size_t n);

/*
 * Loads the library at path (or, without a slash, by the loader's search),
 * fills the table and marks it ready. Libraries that it needs and the loader
 * does not find are taken from dir, unless that is empty. The real path is
 * written to real. Once the table is filled the library is never unloaded and
 * further calls do nothing.
 */
int usmb_load_open(const char *path, const char *dir, char *real, size_t nreal, char *err, size_t nerr);

/*
 * Loads one more library, and what it needs from dir, for those to come that
 * need it by name. A failure is not reported: they will.
 */
void usmb_load_extra(const char *path, const char *dir);

#endif
