"""KeyboardInterrupt every 0.1 ms, in the midst of each of scarce.py's scenarios: run by
test_scarce.py, in a process of its own.

    usmpython storm.py INTERRUPTS

So many of them hit each scenario. None may crash it, turn into another error, or leave anything.
"""

import gc
import json
import signal
import sys

import scarce


MOST = 3  # in one go: the second and third come while the first is dealt with
left = 0


def interrupt(*unused):
    global left
    if left > 0:
        left -= 1
        raise KeyboardInterrupt


def tried(f, at_once, depth):
    """What became of it; each depth takes one interrupt."""
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
    told = {"done": 0, "hit": 0}
    at_once = 1 if f is scarce.withdrawn else MOST  # a second can keep from taking handles back
    wrong = []
    while told["hit"] < most and told["done"] < 100 * most and not wrong:
        what = tried(f, at_once, MOST + 1)
        left = 0
        if what in told:
            told[what] += 1
        else:
            wrong.append(what)
    gc.collect()
    stays = scarce.settled(f, before)
    if stays:
        wrong.append(stays)
    f()
    return dict(name=f.__name__, failures=wrong, **told)


def main():
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    for f in scarce.SCENARIOS:
        if len(sys.argv) < 3 or f.__name__ in sys.argv[2:]:
            print("begin", f.__name__, file=sys.stderr, flush=True)
            print(json.dumps(storm(f, int(sys.argv[1]))), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)  # Python's end takes the handler away


if __name__ == "__main__":
    main()
