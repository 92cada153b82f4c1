#!/usr/bin/env bash
# Tests the packages that work without cgo, and builds the module without cgo for other systems.
set -euo pipefail
cd "$(dirname "$0")/../../.."
go=${GO:-go}
export CGO_ENABLED=0
"$go" build ./...
"$go" test ./dlpack/... ./memmgr/... ./syclobj/... ./usmarray/... ./examples/quickstart ./interop/internal/usminfo
GOOS=darwin GOARCH=arm64 "$go" build ./...
GOOS=windows GOARCH=amd64 "$go" build ./...
# The host backend supports all architectures of Linux: of 32 bits, big-endian, and with other numbers of
# system calls. Without optimization the standard library compiles in half the time.
for arch in 386 arm riscv64 ppc64le s390x loong64 mips64le; do
	echo "linux/$arch"
	GOOS=linux GOARCH=$arch "$go" build -gcflags='all=-N -l' ./examples/quickstart ./interop/share ./memmgr/segment \
		./memmgr/arena ./usmarray/kernel ./dlpack/cute
done
