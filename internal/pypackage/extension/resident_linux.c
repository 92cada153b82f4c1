/* resident_linux.c: the memory of the loaded library. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Releases the pages of one library if it contains the address. */
static int release_pages(struct dl_phdr_info *info, size_t size, void *inside)
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
		/* The segment is a read-only mapping of a file, so the file still has its contents. */
		(void)madvise((void *)start, end - start, MADV_DONTNEED);
	}
	return ours;
}

void usmb_release_tables(void);

/* Releases the pages of the library's read-only segments: 2 MiB of relocations and symbols, which the
   loader reads once, and of Go's function tables, which mostly the start of the runtime reads. The
   kernel maps a page again when it is read. */
void usmb_release_tables(void)
{
	dl_iterate_phdr(release_pages, (void *)(uintptr_t)usmb_release_tables);
}
