//go:build cgo

package linkage

/*
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

enum { DYNAMIC = 1, STATIC };

// The first object is the program; a dynamic one names its loader in PT_INTERP.
static int linkage(struct dl_phdr_info *info, size_t size, void *arg)
{
	int i;

	(void)size;
	(void)arg;
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_INTERP) return DYNAMIC;
	return STATIC;
}

static int is_static(void)
{
	return dl_iterate_phdr(linkage, NULL) == STATIC;
}
*/
import "C"

// Static reports whether the program is linked statically, so that it has no dynamic loader.
func Static() bool { return C.is_static() != 0 }
