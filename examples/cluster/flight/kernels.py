"""What each shard does to its rows."""

import numba
import numpy as np
import usmbridge as ub


@numba.njit(nogil=True)
def luminance(picture, grey):
    """picture: rows of red, green and blue; grey: rows of 0.299 R + 0.587 G + 0.114 B."""
    height, width = grey.shape
    for i in range(height):
        for j in range(width):
            grey[i, j] = np.float32(0.299) * picture[i, j, 0] + np.float32(0.587) * picture[i, j, 1] + np.float32(0.114) * picture[i, j, 2]


def on_rows(picture):
    """Compiled when it is first called. The Array goes in as it is, and the result lies
    beside it: in shared USM, or in the host's memory where there is no SYCL."""
    place = dict(usm_type=picture.usm_type) if picture.usm_type else dict(device="host")
    grey = ub.empty(picture.shape[:2], "float32", **place)
    luminance(picture, grey)
    return grey
