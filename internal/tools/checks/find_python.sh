# find_python MINOR MODULES prints the interpreter of a minor version ("12", "13t") that has the modules, or nothing. It is
# USMBRIDGE_PYTHON_3_MINOR, python3.MINOR on PATH, or one of pyenv.
find_python() {
	local named="USMBRIDGE_PYTHON_3_$1" exe
	for exe in "${!named:-}" "$(command -v "python3.$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$1"*/bin/python3."$1"; do
		# pyenv has shims for versions that are not installed; running one fails.
		if [ -n "$exe" ] && "$exe" -c "import $2" 2>/dev/null; then
			echo "$exe"
			return
		fi
	done
}
