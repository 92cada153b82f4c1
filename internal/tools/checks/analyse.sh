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
	mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.c' '*.go' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
else
	files=("$@")
fi

# preamble prints the C of a Go file, with the same line numbers.
preamble() {
	awk '
		/^\/\*$/ { begin = NR }
		/^\*\/$/ { end = NR }
		/^import "C"$/ && end == NR - 1 { first = begin; last = end }
		{ line[NR] = $0 }
		END { for (i = 1; i < last; i++) print (i > first && line[i] !~ /^#cgo /) ? line[i] : "" }
	' "$1"
}

warnings=(-std=gnu11 -O2 -Wall -Wextra -Wconversion -Werror $analyser)
includes=(-I. -Idlpack -Isyclobj -Iinternal/owner -Iinterop/python -Iinterop/pymodule)
one() {
	local file=$1 from=$1 flags=("${warnings[@]}") dir
	dir=$(dirname "$file")
	case $file in
	*.go)
		grep -q '^import "C"$' "$file" || return 0
		from=$work/${file//\//_}.c
		{ echo "#line 1 \"$file\""; preamble "$file"; } >"$from" || exit 1
		flags+=(-Wno-unused-function ${analyser:+-fkeep-static-functions}) # Go calls them
		;;
	interop/python/testdata/prototypes.c) return 0 ;;           # its test compiles it with Python.h
	internal/tools/memcheck/testdata/drive/mistakes.c) return 0 ;; # its mistakes are deliberate
	esac
	"${cc[@]}" "${flags[@]}" -I"$dir" "${includes[@]}" -c -o /dev/null "$from" || echo "$file" >>"$work/failed"
	echo "$file" >>"$work/done"
}

jobs=$(nproc)
for file in "${files[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
	one "$file" &
done
wait
count=$(sort -u "$work/done" 2>/dev/null | wc -l)
if [ -s "$work/failed" ]; then
	echo "analyse: warnings in $(sort -u "$work/failed" | tr '\n' ' ')" >&2
	exit 1
fi
if [ "$count" -eq 0 ]; then
	echo "analyse: no C found" >&2
	exit 1
fi
echo "analyse: $count files, no warnings"
