//go:build linux && cgo

#define _GNU_SOURCE
#include "loader.h"
#include "gate.h"
#include "signals.h"
#include "symbols.h"
#include "usmb_sycl.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct usmb_dpctl usmb_dp;
_Atomic int usmb_symbols_ready;
_Atomic int64_t usmb_live_counts[USMB_LIVE_SORTS];

static const struct {
	const char *name;
	size_t offset;
	int required;
} functions[] = {
#define X(ret, name, args) {#name, offsetof(struct usmb_dpctl, name), 1},
        USMB_DPCTL_FUNCTIONS(X)
#undef X
#define X(ret, name, args) {#name, offsetof(struct usmb_dpctl, name), 0},
                USMB_DPCTL_OPTIONAL(X)
#undef X
};

struct search {
	const char *prefix;
	char *path;
	size_t n;
};

static int match(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	const char *base;

	(void)size;
	if (info->dlpi_name == NULL || info->dlpi_name[0] == 0) return 0;
	base = strrchr(info->dlpi_name, '/');
	base = base != NULL ? base + 1 : info->dlpi_name;
	if (strncmp(base, s->prefix, strlen(s->prefix)) != 0) return 0;
	return snprintf(s->path, s->n, "%s", info->dlpi_name) < (int)s->n;
}

int usmb_load_find(const char *prefix, char *path, size_t n)
{
	struct search s = {prefix, path, n};

	return dl_iterate_phdr(match, &s);
}

void usmb_load_path(char *dirs, size_t n)
{
	dirs[0] = 0;
#ifdef __GLIBC__
	Dl_serinfo size, *info;
	void *program = dlopen(NULL, RTLD_NOW);
	size_t used = 0;
	unsigned i;

	if (program == NULL || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return;
	info = malloc(size.dls_size);
	if (info == NULL) return;
	*info = size;
	if (dlinfo(program, RTLD_DI_SERINFO, info) == 0)
		for (i = 0; i < info->dls_cnt && used < n; i++)
			used += (size_t)snprintf(dirs + used, n - used, "%s%s", i > 0 ? ":" : "",
			                         info->dls_serpath[i].dls_name);
	if (used >= n) dirs[0] = 0;
	free(info);
#endif
}

/*
 * Extracts the name from "NAME: cannot open shared object file: ...", which dlopen reports for a
 * dependency that was not found.
 */
static int missing(const char *error, char *name, size_t n)
{
	static const char tail[] = ": cannot open shared object file";
	const char *end = strstr(error, tail);

	if (end == NULL || end == error || (size_t)(end - error) >= n ||
	    memchr(error, '/', (size_t)(end - error)) != NULL)
		return 0;
	memcpy(name, error, (size_t)(end - error));
	name[end - error] = 0;
	return 1;
}

/*
 * Calls dlopen, and loads dependencies that are not found from dir. Wheels of dpctl 0.17 name a wrong
 * directory for libsycl and its dependencies, which are in lib of the environment. dlerror is per thread, so it is
 * read immediately.
 */
static void *open_near(const char *path, const char *dir, int depth, char *err, size_t nerr)
{
	char name[128], last[128] = "", near[4224];
	const char *text;
	void *lib;

	while ((lib = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL) {
		text = dlerror();
		snprintf(err, nerr, "%s", text != NULL ? text : "no reason given");
		if (depth == 0 || dir[0] == 0 || !missing(err, name, sizeof name) || strcmp(name, last) == 0)
			return NULL;
		memcpy(last, name, sizeof last);
		snprintf(near, sizeof near, "%s/%s", dir, name);
		if (access(near, R_OK) != 0 || open_near(near, dir, depth - 1, err, nerr) == NULL) return NULL;
	}
	return lib;
}

/* 1 in children of forks after usmb_sycl_end_children. */
static _Atomic int forked;

static void in_child(void)
{
	atomic_store(&forked, 1);
}

/* A function of glibc, which other C libraries lack. */
extern int on_exit(void (*function)(int status, void *arg), void *arg) __attribute__((weak));

static void end_child(int status, void *unused)
{
	(void)unused;
	if (!atomic_load(&forked)) return;
	(void)fflush(NULL);
	_exit(status);
}

/* Handlers run in the reverse order, so this one must be registered after the destructors of SYCL, and before the
 * fork, so that those of libraries that are loaded in the child run before it. */
void usmb_sycl_end_children(void)
{
	static _Atomic int done;

	if (on_exit == NULL || atomic_exchange(&done, 1)) return;
	if (pthread_atfork(NULL, NULL, in_child) == 0) (void)on_exit(end_child, NULL);
}

static int adopted; /* written before usmb_symbols_ready is set */

int usmb_load_adopted(void)
{
	return adopted;
}

int usmb_load_open(const char *path, const char *dir, char *real, size_t nreal, char *err, size_t nerr)
{
	struct usmb_dpctl table;
	usmb_signals signals;
	struct link_map *map = NULL;
	void *lib, *fn;
	size_t i;

	if (usmb_ready()) return USMB_LOAD_OK;
	/* An instance that is already loaded must be used: two copies of
	 * the library would be two SYCL runtimes whose objects do not match. */
	usmb_signals_save(&signals);
	/* Intel's math library (libimf) selects functions of libm while it is being
	 * loaded, which crashes unless libm is already loaded; a Go program
	 * does not load it. */
	(void)dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	/* Other libraries than dpctl's can have queues too. */
	adopted = lib != NULL || usmb_load_find("libsycl.so", real, nreal);
	if (lib == NULL) lib = open_near(path, dir, 8, err, nerr);
	usmb_signals_restore(&signals);
	if (lib == NULL) return USMB_LOAD_OPEN;
	for (i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		fn = dlsym(lib, functions[i].name);
		if (fn == NULL && functions[i].required) {
			snprintf(err, nerr, "%s", functions[i].name);
			/* None of its functions was called yet. If it stayed loaded, it would be used
			 * as the process's instance from then on. */
			(void)dlclose(lib);
			return USMB_LOAD_SYMBOL;
		}
		memcpy((char *)&table + functions[i].offset, &fn, sizeof fn);
	}
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map != NULL && map->l_name != NULL && map->l_name[0] != 0)
		snprintf(real, nreal, "%s", map->l_name);
	else
		snprintf(real, nreal, "%s", path);
	usmb_dp = table;
	usmb_empty_bind(lib);
	usmb_gate_bind(lib);
	atomic_store_explicit(&usmb_symbols_ready, 1, memory_order_release);
	return USMB_LOAD_OK;
}

void usmb_load_extra(const char *path, const char *dir)
{
	usmb_signals signals;
	char err[4096];

	usmb_signals_save(&signals);
	(void)open_near(path, dir, 8, err, sizeof err);
	usmb_signals_restore(&signals);
}
