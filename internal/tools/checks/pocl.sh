# Sourced as `. pocl.sh DIRECTORY`: fetches PoCL 7.1 into the directory, unless it is there, and selects it beside
# Intel's CPU driver: opencl:cpu:0 is PoCL's device. The status is 1, with the reason printed, if a package is not
# available. DEBIAN_MIRROR names another mirror. Nothing is installed in the system.
pocl_fetch() {
	local dir=$1 here=internal/tools/checks/pocl hash path file
	[ ! -f "$dir/complete" ] || return 0
	rm -rf "$dir" && mkdir -p "$dir/root" "$dir/packages" || return
	while read -r hash path; do
		[[ $hash != \#* ]] || continue
		file=$dir/packages/$(basename "$path")
		curl -sSfL --retry 2 -o "$file" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}/$path" &&
			echo "$hash  $file" | sha256sum --check --quiet || { echo "pocl: $path: not available with the pinned contents"; return 1; }
		dpkg-deb --fsys-tarfile "$file" | tar x -C "$dir/root" --exclude './usr/share/doc*' || return
	done <"$here/packages.txt"
	rm -rf "$dir/packages"
	"${CC:-cc}" -shared -fPIC -O1 -o "$dir/newer_libc.so" $here/newer_libc.c || return
	for file in "$dir"/root/usr/lib/x86_64-linux-gnu/libpocl.so.2.* "$dir"/root/usr/lib/x86_64-linux-gnu/pocl/*.so; do
		"$VIRTUAL_ENV/bin/python" $here/weaken.py "$file" GLIBC_2.38 GLIBCXX_3.4.32 || return
	done
	# The translator runs with the C library of its packages.
	cat >"$dir/llvm-spirv" <<-'END' && chmod +x "$dir/llvm-spirv" && touch "$dir/complete"
		#!/bin/sh
		root=$(dirname "$(readlink -f "$0")")/root
		unset LD_PRELOAD
		exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/llvm-spirv-21" "$@"
	END
}
pocl_fetch "$1" || return
export LD_PRELOAD=$1/newer_libc.so LD_LIBRARY_PATH=$VIRTUAL_ENV/lib
export POCL_PATH_LLVM_SPIRV=$1/llvm-spirv POCL_CACHE_DIR=$1/cache
export OCL_ICD_FILENAMES=$1/root/usr/lib/x86_64-linux-gnu/libpocl.so.2:$VIRTUAL_ENV/lib/libintelocl.so
