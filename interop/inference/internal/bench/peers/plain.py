"""Plain processes: each runs the pure Python model for so many seconds and prints how often."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))
import busy


def main():
    seconds = float(sys.argv[1])
    busy.work()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        busy.work()
        calls += 1
    print(calls / (time.perf_counter() - start))


main()
