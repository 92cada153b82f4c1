#!/usr/bin/env bash
# Runs all Python tests with the wheel, on each installed Python from 3.11 to 3.14, and on the CPython 3.14 of
# interop/embedpython. On free-threaded builds, which have no stable ABI, the import must fail with an
# explanation. Prints which versions are missing.
#
#	test-pythons.sh WHEEL DIRECTORY [arguments of pytest]
#
# The environments stay in DIRECTORY (3 GB each, with the pinned packages of the tests). PYTHONS="13 14t" selects versions.
set -uo pipefail
wheel=$(realpath "$1")
mkdir -p "$2"
dir=$(realpath "$2")
shift 2
root=$(realpath "$(dirname "$0")/../../..")
cd "$root" || exit 2

. internal/tools/checks/find_python.sh

# run_suite MINOR PYTHON [ARGS] runs the tests. The result is the last line of pytest, with the counts.
run_suite() {
	local minor=$1 exe=$2 env=$dir/3.$1
	# Without pip, because some interpreters have no ensurepip. Set-up adds it.
	[ -x "$env/bin/python" ] || "$exe" -m venv --without-pip "$env" || return
	"${GO:-go}" run ./internal/tools/setup -dir "$env" test || return
	"$env/bin/python" -m pip install --quiet --no-index --no-deps --force-reinstall --disable-pip-version-check "$wheel" || return
	local require=(USMBRIDGE_REQUIRE_PYTHON=1)
	[ "$(uname -m)" != x86_64 ] || require+=(USMBRIDGE_REQUIRE_SYCL=1 USMBRIDGE_REQUIRE_PEERS=1)
	env -u VIRTUAL_ENV -u PYTHONPATH -u PYTHONHOME -u USMBRIDGE_SYCL -u USMBRIDGE_PYTHON PYTHONDONTWRITEBYTECODE=1 \
		USMBRIDGE_TEST_HOST="$env/bin/python" PATH="$env/bin:$PATH" "${require[@]}" \
		"$env/bin/python" -m pytest -q -p no:cacheprovider "$root/interop/pymodule/tests" "${@:3}"
}

# run_refusal PYTHON imports the files of the wheel in a free-threaded Python. The import must raise an ImportError
# that names the reason.
run_refusal() {
	local site=$dir/files
	rm -rf "$site" && mkdir -p "$site" && "$1" -m zipfile -e "$wheel" "$site" || return
	! PYTHONPATH=$site "$1" -c 'import usmbridge' 2>"$dir/refusal" && sed 's/^/refused: /' "$dir/refusal" | grep 'ImportError: .*free-threaded'
}

failed=0
report=()
# shellcheck disable=SC2086 # a list
for minor in ${PYTHONS:-11 12 13 14 13t 14t}; do
	exe=$(find_python "$minor" venv)
	if [ -z "$exe" ] && [ "$minor" = 14 ]; then
		exe=$(cd interop/embedpython && "${GO:-go}" run . "$dir/base" | sed 's/.*"python":"\([^"]*\)".*/\1/')
	fi
	if [ -z "$exe" ]; then
		report+=("3.$minor	missing: no python3.$minor on PATH or in pyenv")
		continue
	fi
	echo "== Python 3.$minor: $exe"
	log=$dir/3.$minor.log
	case $minor in
	*t) run_refusal "$exe" ;;
	*) run_suite "$minor" "$exe" "$@" ;;
	esac 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	[ "$status" -eq 0 ] || failed=1
	# Libraries may print more after the line with the counts.
	result=$(grep -E '^refused: |^[0-9]+ (passed|failed|error).* in [0-9.]+s' "$log" | tail -n 1)
	report+=("3.$minor	${result:-no result: $(grep . "$log" | tail -n 1)}	($exe)")
done
echo
printf '%s\n' "${report[@]}"
exit "$failed"
