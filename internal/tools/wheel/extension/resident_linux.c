/* resident_linux.c: what the library keeps in memory once it has been loaded. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "resident.h"

/* The segments of the library that holds an address inside of it. */
static int let_go(struct dl_phdr_info *info, size_t size, void *inside)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)inside - info->dlpi_addr;
	int ours = 0;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		ours |= h->p_type == PT_LOAD && at >= h->p_vaddr && at < h->p_vaddr + h->p_memsz;
	}
	for (int i = 0; ours && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		if (h->p_type != PT_LOAD || h->p_flags != PF_R) continue;
		uintptr_t start = info->dlpi_addr + h->p_vaddr, end = start + h->p_memsz;
		start &= ~(page - 1);
		end = (end + page - 1) & ~(page - 1);
		/* Of a mapping of a file that nobody can have written to: what is read again
		   comes from the file's pages again. */
		(void)madvise((void *)start, end - start, MADV_DONTNEED);
	}
	return ours;
}

void usmb_let_tables_go(void)
{
	dl_iterate_phdr(let_go, (void *)(uintptr_t)usmb_let_tables_go);
}
