"""usmbridge.cute: conversion and marks, compared with recorded and documented results of CuTe DSL."""

import json
import pathlib

import pytest

from cute_source import ADDRESS, HUGE, sources, tensor  # noqa: F401 (sources is a fixture)

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "dlpack/cute/testdata/cute_layouts.jsonl"


def run(shape, strides, width, ops, **options):
    """Returns the layout after the operations, or the text of the first failure."""
    t = tensor(shape, strides, width, **options)
    for name, args in ops:
        before = str(t)
        try:
            assert getattr(t, name)(**args) is t
        except ValueError as e:
            assert str(t) == before, "a failed mark changes nothing"
            return None, str(e).removesuffix(".")
    assert t.shape == tuple(shape)
    return t, None


# ---- recorded cases -----------------------------------------------------------------


def test_vectors():
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    assert len(rows) == 846
    for i, row in enumerate(rows):
        t, error = run(row["shape"], row["strides"], row["use_32bit_stride"], row["ops"], leading="skip_size_one")
        about = f"line {i + 1}: {row}"
        if "error" in row:
            assert error == row["error"].removesuffix("."), about
        else:
            assert error is None, about
            assert t.layout == row["layout"], about
            assert str(t) == f"Tensor<0x{ADDRESS:016x}@generic o {row['layout']}>", about
            shape, stride = (half.strip("()") for half in row["layout"].split(":"))
            for mask, half in ((t.dynamic_shapes_mask, shape), (t.dynamic_strides_mask, stride)):
                assert mask == tuple(int(s.startswith("?")) for s in half.split(",") if s), about


# ---- the examples of CuTe DSL's documentation ------------------------------------------

A = (8, 4, 16, 2), (2, 16, 64, 1)
B = (1, 4, 1, 32, 1), (1, 1, 1, 4, 1)
C = (2, 2), (8, 2)
D = (3, 4, 2, 5), (5, 0, 0, 1)
ONES = (1, 1, 1), (1, 1, 1)
AMBIGUOUS = "Can't deduce the leading dimension from layout, please specify the leading_dim explicitly"
OVERFLOW = "Layout in DLTensorWrapper has int32 overflow risk. Please set use_32bit_stride to False"


@pytest.mark.parametrize("layout, width, leading, lead, want", [
    (A, None, "unique", None, "(?,?,?,?):(?,?,?,1)"),
    (B, None, "unique", 0, "(?,?,?,?,?):(1,?,?,?,?)"),
    (B, None, "unique", 2, "(?,?,?,?,?):(?,?,1,?,?)"),
    (C, None, "unique", None, "(?,?):(?,?)"),
    (D, None, "unique", None, "(?,?,?,?):(?,0,0,1)"),
    (B, None, "unique", None, AMBIGUOUS),
    (B, False, "skip_size_one", None, "(?,?,?,?,?):(?{i64},1,?{i64},?{i64},?{i64})"),
    (ONES, None, "unique", None, AMBIGUOUS),
    (ONES, None, "skip_size_one", None,
     "Can't deduce the leading dimension from layout (multiple dimensions have stride 1 but none has size > 1), "
     "please specify leading_dim explicitly"),
    (A, None, "unique", 1, "Expected strides[leading_dim] == 1, but got 16"),
    (B, None, "unique", 3, "Expected strides[leading_dim] == 1, but got 4"),
    (HUGE, True, "unique", None, OVERFLOW),
    (HUGE, False, "unique", None, "(?,?):(?{i64},1)"),
    (A, None, "unique", -1, "(?,?,?,?):(?,?,?,1)"),
    (A, None, "unique", 4, "Expected leading_dim to be in range [0, 4) or [-4, -1], but got 4"),
    (A, None, "unique", -5, "Expected leading_dim to be in range [0, 4) or [-4, -1], but got -5"),
])
def test_documented_layout_marks(layout, width, leading, lead, want):
    t, error = run(*layout, width, [("mark_layout_dynamic", {"leading_dim": lead})], leading=leading)
    assert (t.layout if t else error) == want


@pytest.mark.parametrize("layout, width, calls, want", [
    (A, None, [(0, None, 2)], "(?{div=2},4,16,2):(2,?{div=4},?{div=16},1)"),
    (A, None, [(1, None, 2)], "(8,?{div=2},16,2):(2,16,?{div=32},1)"),
    (A, None, [(1, None, 2), (3, None, 2)], "(8,?{div=2},16,?{div=2}):(?{div=2},?{div=16},?{div=32},1)"),
    (A, False, [(1, None, 2), (3, None, 2)],
     "(8,?{div=2},16,?{div=2}):(?{i64 div=2},?{i64 div=16},?{i64 div=32},1)"),
    (B, None, [(2, (3, 0, 2, 4, 1), 1)], "(1,4,?,32,1):(0,1,4,?{div=4},0)"),
    (B, None, [(2, (2, 3, 4, 0, 1), 1)], "(1,4,?,32,1):(0,1,128,4,0)"),
    (A, None, [(1, None, 2), (3, None, 2), (3, (0, 1, 2, 3), 5)],
     "The stride_order is not consistent with the last stride_order"),
    (A, None, [(3, (0, 1, 2, 3), 5)], "The stride_order is not consistent with the deduced stride_order"),
    (B, None, [(0, None, 4)], "The layout could not be deduced, please specify the stride_order explicitly"),
    (B, None, [(30, (3, 0, 2, 4, 1), 5)], "Expected mode value to be in range [0, 5), but got 30"),
    (B, None, [(3, (2, 1, 2, 3, 4), 5)],
     "Expected stride_order to contain all the dimensions of the tensor, but it doesn't contain 0"),
    (B, None, [(3, (0, 1, 2, 3, 4, 5), 5)], "Expected stride_order to have 5 elements, but got 6"),
    (B, None, [(3, range(100), 5)], "Expected stride_order to have 5 elements, but got 100"),
    (B, None, [(0, (3, 2, 4, 0, 1), 4)], "The shape(1) of mode(0) is not divisible by the divisibility(4)"),
    (B, None, [(0, (2, 1, 3, 0, 4), 1)], "The stride_order is not consistent with the layout"),
    (HUGE, True, [(0, None, 1)], OVERFLOW),
    (C, None, [(0, [0, -1], 1)], "Expected stride_order value to be in range [0, 2), but got -1"),
    (A, None, [(0, None, 0)],
     "Expected divisibility to be at least 1, but got 0: 1 says nothing of the extent, n that it is a multiple of n"),
    (((8,), (3,)), None, [(0, None, 1)],
     "The layout (8):(3) is not compact: mode(0) has stride 3 where a compact layout has 1. Use mark_layout_dynamic, "
     "or a compact copy of the tensor"),
])
def test_documented_compact_marks(layout, width, calls, want):
    ops = [("mark_compact_shape_dynamic", {"mode": m, "stride_order": o, "divisibility": d}) for m, o, d in calls]
    t, error = run(*layout, width, ops)
    assert (t.layout if t else error) == want


def test_defaults_and_positions():
    t = tensor(*A)
    assert t.mark_compact_shape_dynamic(1) is t and t.layout == "(8,?,16,2):(2,16,?{div=16},1)"
    assert tensor(*A).mark_compact_shape_dynamic(1, (2, 1, 0, 3), 2).layout == "(8,?{div=2},16,2):(2,16,?{div=32},1)"
    assert tensor(*B).mark_layout_dynamic(0).layout == tensor(*B).mark_layout_dynamic(leading_dim=0).layout
