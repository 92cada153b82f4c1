/*
 * usmb_package.h: the package usmbridge in an interpreter that a program of Go hosts.
 */
#ifndef USMB_PACKAGE_H
#define USMB_PACKAGE_H

#include "usmb_pyapi.h"

/* A file of the package, before Python starts: name and data, which ends with a zero
   byte after size, are kept. The first is the importer, which makes the package of the
   others. 0, or -1: too many. */
int usmb_package_add(const char *name, const char *data, size_t size);

/* The init function of the built-in module. */
PyObject *usmb_package_init(void);

#endif
