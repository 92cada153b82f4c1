"""Tests that NumPy before 2.1 cannot pass, by name; they are skipped with such a release.

Its from_dlpack takes no keywords and returns read-only arrays, which it cannot export by DLPack. Before 2.0 there is
no ndarray.mT, arrays have at most 32 dimensions, and values out of range wrap instead of raising an error."""

READ_ONLY = "NumPy before 2.1 imports tensors read-only and cannot export read-only arrays by DLPack"
KEYWORDS = "numpy.from_dlpack takes no keywords before NumPy 2.1"
LATER = "the test compares with the behaviour of NumPy since 2.0"

LACKING = {
    READ_ONLY: """
        test_release::test_buffers_keep_the_memory
        test_hostile::test_chains_of_owners_need_no_stack test_element_types::test_in_and_out_share_the_memory
        test_numba::test_read_only test_release::test_del_releases_the_source_at_once
        test_release::test_threads test_released_meanwhile::test_results_of_compiled_functions_keep_the_memory
        test_sequences::test_a_leaf_is_read_once test_buffers::test_buffers_out
        test_dlpack_import::test_legacy_tensors_are_read_only
        """,
    KEYWORDS: """
        test_dlpack_export::test_not_in_default_context
        """,
    LATER: """
        test_array::test_packed_elements_backwards test_element_types::test_all_pairs
        test_element_types::test_numbers_become_every_type test_views::test_views test_values::test_values
        """,
}


def reason(version, module, function):
    """Returns why a test is skipped with that NumPy, or None."""
    if version >= (2, 1):
        return None
    for why, names in LACKING.items():
        if f"{module}::{function}" in names.split():
            return why
    return None
