/* Deliberate mistakes, which valgrind and the sanitizers must find. The compiler must not find them, so
 * analyse.sh skips this file. */
#include "drive.h"

#include <string.h>

static volatile size_t hidden = 16;
static void *volatile gone;

int wrong(const char *mistake)
{
	char *p = malloc(hidden);

	if (p == NULL) return 0;
	gone = p;
	if (strcmp(mistake, "check") == 0) CHECK(hidden == 0);
	if (strcmp(mistake, "read") == 0 && p[hidden] == 'x') puts("read");
	if (strcmp(mistake, "unwritten") == 0 && p[3] == 'x') puts("unwritten");
	if (strcmp(mistake, "overflow") == 0) printf("%d\n", INT32_MAX - 15 + (int)hidden);
	if (strcmp(mistake, "leak") == 0) {
		gone = p = NULL;
		return 0;
	}
	free(p);
	p = gone;
	if (strcmp(mistake, "freed") == 0) hidden = (size_t)p[3];
	if (strcmp(mistake, "twice") == 0) free(p);
	return 0;
}
