/*
 * resident.h: what the library keeps in memory once it has been loaded.
 */
#ifndef USMB_RESIDENT_H
#define USMB_RESIDENT_H

/* The relocations and symbols are read by the loader, once, and the tables of Go's
   functions mostly by the start of its runtime: 2 MiB that an idle process does not need
   resident. They are mapped again as they are read. */
void usmb_let_tables_go(void);

#endif
