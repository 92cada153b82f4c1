#!/usr/bin/env bash
# Runs a command, and prints every 30 seconds for how long it has been running: progress.sh COMMAND [ARG...]
set -u
start=$SECONDS
# The sleep holds no pipe of this script, so that a reader of the output does not wait for it.
(while sleep 30 >/dev/null 2>&1; do
	printf 'running for %d:%02d min\n' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
done) >&2 &
trap 'kill $!' EXIT
"$@"
