#!/usr/bin/env bash
# The whole Python suite, with the wheel, on every Python from 3.11 to 3.14 that this
# machine has, and on the 3.14 that the project carries; those that are missing are
# named. A free-threaded build, which has no stable ABI, must refuse the wheel with words.
#
#	test-pythons.sh WHEEL DIRECTORY [pytest's arguments]
#
# The environments stay in DIRECTORY (3 GB each, pinned as the tests' own). Looked at are
# python3.N on PATH, those of pyenv, and, for one that is wanted elsewhere,
# USMBRIDGE_PYTHON_3_N=/path/to/python3.N. PYTHONS="13 14t" names some instead of all.
set -uo pipefail
wheel=$(realpath "$1")
mkdir -p "$2"
dir=$(realpath "$2")
shift 2
root=$(realpath "$(dirname "$0")/../../..")
cd "$root" || exit 2

# The interpreter of a minor version ("12", "13t"), or nothing.
find_python() {
	local named="USMBRIDGE_PYTHON_3_$1" exe
	for exe in "${!named:-}" "$(command -v "python3.$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$1"*/bin/python3."$1"; do
		# A shim of pyenv is there for versions that are not.
		if [ -n "$exe" ] && "$exe" -c 'import venv' 2>/dev/null; then
			echo "$exe"
			return
		fi
	done
	if [ "$1" = 14 ]; then
		(cd interop/embedpython && "${GO:-go}" run . "$dir/base" | sed 's/.*"python":"\([^"]*\)".*/\1/')
	fi
}

# Everything of the suite with the wheel; pytest's line with the counts is the result.
run_suite() {
	local minor=$1 exe=$2 env=$dir/3.$1
	# Without pip: set-up gives one that also a Python without ensurepip can have.
	[ -x "$env/bin/python" ] || "$exe" -m venv --without-pip "$env" || return
	"${GO:-go}" run ./internal/tools/setup -dir "$env" test || return
	"$env/bin/python" -m pip install --quiet --no-index --no-deps --force-reinstall --disable-pip-version-check "$wheel" || return
	local require=(USMBRIDGE_REQUIRE_PYTHON=1)
	[ "$(uname -m)" != x86_64 ] || require+=(USMBRIDGE_REQUIRE_SYCL=1 USMBRIDGE_REQUIRE_PEERS=1)
	env -u VIRTUAL_ENV -u PYTHONPATH -u PYTHONHOME -u USMBRIDGE_SYCL -u USMBRIDGE_PYTHON PYTHONDONTWRITEBYTECODE=1 \
		USMBRIDGE_TEST_HOST="$env/bin/python" PATH="$env/bin:$PATH" "${require[@]}" \
		"$env/bin/python" -m pytest -q -p no:cacheprovider "$root/interop/pymodule/tests" "${@:3}"
}

# The wheel's files on a free-threaded Python: its import has to be an ImportError that
# says why.
run_refusal() {
	local site=$dir/files
	rm -rf "$site" && mkdir -p "$site" && "$1" -m zipfile -e "$wheel" "$site" || return
	PYTHONPATH=$site "$1" -c '
try:
    import usmbridge
except ImportError as e:
    assert "free-threaded" in str(e), e
    print("refused:", e)
else:
    raise SystemExit("a free-threaded Python took the wheel of the stable ABI")'
}

failed=0
report=()
# shellcheck disable=SC2086 # several in one variable
for minor in ${PYTHONS:-11 12 13 14 13t 14t}; do
	exe=$(find_python "$minor")
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
	# After its counts, what the peers' libraries print at the end may follow.
	result=$(grep -E '^refused: |^[0-9]+ (passed|failed|error).* in [0-9.]+s' "$log" | tail -n 1)
	report+=("3.$minor	${result:-no result: $(grep . "$log" | tail -n 1)}	($exe)")
done
echo
printf '%s\n' "${report[@]}"
exit "$failed"
