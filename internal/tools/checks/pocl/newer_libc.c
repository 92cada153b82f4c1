// Functions of glibc 2.38 and libstdc++ 13 that PoCL of Debian testing calls, for systems with older ones. They are
// preloaded into the process.
// clang-format off
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

long __isoc23_strtol(const char *s, char **end, int base) { return strtol(s, end, base); }
long long __isoc23_strtoll(const char *s, char **end, int base) { return strtoll(s, end, base); }
unsigned long __isoc23_strtoul(const char *s, char **end, int base) { return strtoul(s, end, base); }
unsigned long long __isoc23_strtoull(const char *s, char **end, int base) { return strtoull(s, end, base); }
void _ZSt21ios_base_library_initv(void) {}

int __isoc23_sscanf(const char *s, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int n = vsscanf(s, format, arguments);
	va_end(arguments);
	return n;
}
