"""What conversions between element types give: by NumPy and ml_dtypes where they define it.

The tests of usmarray and of the Python module both ask here. As a program it writes into a
directory: FROM, elements of a type, a byte each for those of less than a byte, and FROM-TO,
what they become; there is no such file where a conversion is refused.
"""

import itertools
import pathlib
import re
import sys

import ml_dtypes
import numpy as np

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SUB_BYTE = ["int1", "int2", "int4", "uint1", "uint2", "uint4"]
NARROW = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
FLOATS = ["float16", "float32", "float64"] + NARROW
COMPLEX = ["complex64", "complex128"]
TYPES = ["bool"] + INTEGERS + SUB_BYTE + FLOATS + COMPLEX


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def bits_of(name):
    """Width of an element where elements are packed."""
    narrow = re.fullmatch(r"(?:float|u?int)([1246])(?:_\w+)?", name)
    return int(narrow[1]) if narrow else 8 * dtype_of(name).itemsize


def patterns(name, step=1):
    n = bits_of(name)
    return np.arange(0, 1 << n, step).astype(f"uint{max(n, 8)}").view(dtype_of(name))


def float_edges():
    """Values of all narrow types, the middles between neighbours, and what lies beside those."""
    x = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-300, 2.0**-149, 2.0**-150, 1.1e-38, 3.4e38, 3.41e38, 1e308])]
    powers = 2.0 ** np.arange(-30, 66)
    x += [powers, powers - 0.5, powers - 1, powers + 1, powers * 1.5, powers + 0.5]
    for name in NARROW + ["float16"]:
        v = patterns(name, 1 if bits_of(name) <= 8 else 257).astype("float64")
        v = np.unique(np.abs(v[np.isfinite(v)]))
        middle = (v[1:] + v[:-1]) / 2
        x += [v, middle] + [middle * (1 + s * 2.0**-k) for s in (1, -1) for k in (20, 40)] + [v[-1:] * f for f in (1.03, 1.1, 1.25, 1.5, 2)]
    x = np.concatenate(x)
    return np.unique(np.concatenate([x, -x]).view("uint64")).view("float64")


def integer_edges():
    """Python integers near all powers of two and sums of two."""
    out = {0, 2**53 + 1, 2**64 - 1, -(2**63)}
    for a, b, c in itertools.product(range(65), range(0, 65, 3), (-1, 0, 1)):
        out |= {2**a + c, -(2**a) + c, 2**a + 2**b + c, -(2**a) - 2**b + c}
    return sorted(out)


def elements(name):
    """Elements of a type to convert: all bit patterns of narrow types, edges and random ones of wide types."""
    t, rng = dtype_of(name), np.random.default_rng(7)
    if name == "bool":
        return np.array([False, True])
    if bits_of(name) <= 16:
        return patterns(name, 1 if bits_of(name) <= 8 else 7)
    if name in INTEGERS:
        info = np.iinfo(t)
        edges = np.array([i for i in integer_edges() if info.min <= i <= info.max], dtype=t)
        return np.concatenate([edges, rng.integers(info.min, info.max, 500, dtype=t, endpoint=True)])
    with np.errstate(all="ignore"):
        x = float_edges().astype(f"float{32 if name in ('float32', 'complex64') else 64}")
    x = np.concatenate([x, rng.integers(0, 2**63, 500, dtype="uint64").view(x.dtype)])
    if name in COMPLEX:
        return np.stack([x, np.roll(x, 5)], axis=1).view(t).ravel()
    return x


def cut(x, name):
    """Floating point to integer: fractions cut, saturated, NaN is 0."""
    low, high = (-(1 << bits_of(name) - 1), (1 << bits_of(name) - 1) - 1) if name.startswith("int") else (0, (1 << bits_of(name)) - 1)
    x = np.trunc(x.astype("float64"))
    inside = (x >= low) & (x < high + 1.0)  # not NaN
    wide = np.where(inside, x, 0).astype("int64" if name.startswith("int") else "uint64")
    wide[x >= high + 1.0] = high
    wide[x < low] = low
    return wide.astype(dtype_of(name)), inside


def rounded_to_odd(x):
    """float32 from which a narrower type rounds as if it had rounded x itself, once."""
    exact = x.astype("longdouble")  # holds 64-bit integers too
    y = exact.astype("float32")
    bits = y.view("uint32").copy()
    inexact = np.isfinite(exact) & (y.astype("longdouble") != exact)
    bits[inexact & (np.abs(y.astype("longdouble")) > np.abs(exact))] -= 1
    bits[inexact] |= 1
    return bits.view("float32"), inexact


def same(a, b):
    """Elementwise: the same bits, or both NaN."""
    kind = f"uint{8 * a.dtype.itemsize}"
    return (a.view(kind) == b.view(kind)) | (np.isnan(a.astype("float32")) & np.isnan(b.astype("float32")))


def theirs(x, name):
    """x.astype, through float32, which is exact, where ml_dtypes has no cast between two of its types."""
    try:
        return x.astype(dtype_of(name))
    except TypeError:
        return x.astype("float32").astype(dtype_of(name))


def converted(x, source, target):
    """x, of the type source, as the type target; None where that is refused."""
    with np.errstate(all="ignore"):
        if source in COMPLEX:
            return x.astype(target) if target in COMPLEX + ["bool"] else None
        if source in FLOATS and target in INTEGERS + SUB_BYTE:
            y, defined = cut(x, target)
            assert (y == theirs(x, target))[defined].all(), (source, target)
            return y
        y = theirs(x, target)
        if target in NARROW and dtype_of(source).itemsize > 2 and source != "float32":
            # ml_dtypes goes through float32 and rounds twice; usmbridge rounds once.
            odd, twice = rounded_to_odd(x)
            once = odd.astype(dtype_of(target))
            assert same(once, y)[~twice].all(), (source, target)
            y = once
        return nearest_power(x, y) if target == "float8_e8m0fnu" else y


def nearest_power(x, y):
    """ml_dtypes rounds all that lies between the two smallest powers up; usmbridge takes the nearer one."""
    x, y = x.astype("float64"), y.copy()
    y[(x > 2.0**-127) & (x < 1.5 * 2.0**-127)] = 2.0**-127
    return y


def packed(x, name):
    """The elements without the bits between them that belong to none."""
    width = bits_of(name)
    raw = x.view("uint8")
    if width >= 8:
        return raw
    return np.packbits(np.unpackbits(raw.reshape(-1, 1), axis=1, bitorder="little")[:, :width].ravel(), bitorder="little")


def main(directory):
    for source in TYPES:
        x = elements(source)
        x.tofile(directory / source)
        for target in TYPES:
            y = converted(x, source, target)
            if y is not None:
                y.tofile(directory / f"{source}-{target}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
