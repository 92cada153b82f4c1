#!/usr/bin/env bash
# Compiles C with warnings about types and conversions, and with gcc's static analyser: analyse.sh [FILE...]
# A warning is a failure. Without arguments it compiles all C of the project, including that of Go files (the
# comment before import "C").
#
# The analyser needs gcc 12 or newer. With another compiler the script prints this and checks only the warnings.
set -uo pipefail
read -ra cc <<<"${CC:-gcc}"
if ! command -v "${cc[0]}" >/dev/null; then
	echo "analyse: ${cc[0]} not found; set CC to a C compiler" >&2
	exit 1
fi
analyser=-fanalyzer
if [ "$(echo | "${cc[@]}" -dM -E - | awk '$2 == "__clang__" {print 0; exit} $2 == "__GNUC__" {n = $3} END {print n}' | head -n1)" -lt 12 ]; then
	echo "analyse: ${cc[*]} is not gcc 12 or newer; not using the static analyser"
	analyser=
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# -eq 0 ]; then
	mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.c' '*.go')
else
	files=("$@")
fi

# preamble prints the C of a Go file, with the same line numbers. Go calls its static functions.
preamble() {
	echo '#pragma GCC diagnostic ignored "-Wunused-function"'
	echo "#line 1 \"$1\""
	awk '
		/^\/\*$/ { begin = NR }
		/^\*\/$/ { end = NR }
		/^import "C"$/ && end == NR - 1 { first = begin; last = end }
		{ line[NR] = $0 }
		END { for (i = 1; i < last; i++) print (i > first && line[i] !~ /^#cgo /) ? line[i] : "" }
	' "$1"
}

units=() # the flags and the file of each compilation
for file in "${files[@]}"; do
	from=$file keep=-I.
	[ -f "$file" ] || continue # deleted, and still in the index
	case $file in
	*.go)
		grep -q '^import "C"$' "$file" || continue
		from=$work/${file//\//_}.c
		preamble "$file" >"$from" || exit 1
		[ -z "$analyser" ] || keep=-fkeep-static-functions
		;;
	interop/python/testdata/prototypes.c) continue ;;           # its test compiles it with Python.h
	internal/tools/memcheck/testdata/drive/mistakes.c) continue ;; # its mistakes are deliberate
	esac
	units+=("$keep" "-I$(dirname "$file")" "$from")
done
[ "${#units[@]}" -gt 0 ] || { echo "analyse: no C found" >&2 && exit 1; }
printf '%s\0' "${units[@]}" | xargs -0 -n3 -P"$(nproc)" "${cc[@]}" -std=gnu11 -O2 -Wall -Wextra -Wconversion -Werror \
	$analyser -Idlpack -Isyclobj -Iinternal/owner -Iinterop/python -Iinterop/pymodule -I. -c -o /dev/null || { echo "analyse: see the warnings above" >&2 && exit 1; }
echo "analyse: $((${#units[@]} / 3)) files, no warnings"
