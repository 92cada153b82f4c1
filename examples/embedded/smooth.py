"""What this program does in Python, with the standard library alone."""

import usmbridge


def smooth(array: usmbridge.Array) -> float:
    """Each element becomes the mean of itself and its neighbours, in place; their sum."""
    view = memoryview(array)
    old = view.tolist()
    for i in range(len(old)):
        near = old[max(0, i - 1): i + 2]
        view[i] = sum(near) / len(near)
    return sum(view)
