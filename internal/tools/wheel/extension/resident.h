/* resident.h: the memory of the loaded library. */
#ifndef USMB_RESIDENT_H
#define USMB_RESIDENT_H

/* Releases the pages of the library's read-only segments: 2 MiB of relocations and symbols, which the
   loader reads once, and of Go's function tables, which mostly the start of the runtime reads. The
   kernel maps a page again when it is read. */
void usmb_release_tables(void);

#endif
