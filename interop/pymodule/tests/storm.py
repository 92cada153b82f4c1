"""Raises KeyboardInterrupt every 0.1 ms during each scenario of scarce.py; test_scarce.py runs it in a process of
its own.

    usmpython storm.py INTERRUPTS

INTERRUPTS of them hit each scenario. None may crash it, become another error, or leave memory behind."""

import gc
import json
import signal
import sys

import scarce


MOST = 3  # interrupts at once: the second and third hit the handling of the first
left = 0


def interrupt(*unused):
    global left
    if left > 0:
        left -= 1
        raise KeyboardInterrupt


def tried(f, at_once, depth):
    """Runs a scenario and returns its result. Each level of depth handles one interrupt."""
    global left
    try:
        if depth > 0:
            return tried(f, at_once, depth - 1)
        left = at_once
        f()
        left = 0
        return "done"
    except KeyboardInterrupt:
        return "hit"
    except BaseException as e:
        return f"{type(e).__name__}: {e}"


def storm(f, most):
    global left
    for _ in range(3):
        f()
    before = scarce.at_rest(f)
    counts = {"done": 0, "hit": 0}
    at_once = 1 if f is scarce.withdrawn else MOST  # a second interrupt can prevent the revoking of handles
    wrong = []
    while counts["hit"] < most and counts["done"] < 100 * most and not wrong:
        what = tried(f, at_once, MOST + 1)
        left = 0
        if what in counts:
            counts[what] += 1
        else:
            wrong.append(what)
    gc.collect()
    stays = scarce.settled(f, before)
    if stays:
        wrong.append(stays)
    f()
    return dict(name=f.__name__, failures=wrong, **counts)


def main():
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    for f in scarce.SCENARIOS:
        if len(sys.argv) < 3 or f.__name__ in sys.argv[2:]:
            print("begin", f.__name__, file=sys.stderr, flush=True)
            print(json.dumps(storm(f, int(sys.argv[1]))), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)  # Python removes the signal handler at its end


if __name__ == "__main__":
    main()
