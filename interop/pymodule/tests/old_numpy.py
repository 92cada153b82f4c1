"""What the suite asks of NumPy that releases before 2.1 have not: skipped with them, by name.

Their from_dlpack gives read-only arrays, which they cannot give on by DLPack, and takes no keywords; before 2.0 there
is no ndarray.mT, arrays have 32 dimensions at most, and values out of range are cut off where they are errors now.
"""

READ_ONLY = "NumPy before 2.1 takes tensors read-only and cannot give read-only arrays by DLPack"
KEYWORDS = "numpy.from_dlpack takes no keywords before NumPy 2.1"
LATER = "the test compares with what NumPy does since 2.0"

LACKING = {
    READ_ONLY: """
        test_cute_tensor::test_views_of_numpy test_dlpack_export::test_read_only test_dlpack_export::test_types_with_numpy
        test_dlpack_import::test_numpy test_given_up::test_buffers_keep_the_memory
        test_hostile::test_chains_of_owners_need_no_stack test_hostile::test_one_capsule_and_many_threads
        test_ml_types::test_in_and_out_share_the_memory test_numba::test_read_only
        test_release::test_del_releases_the_source_at_once test_release::test_stats_are_exact
        test_release::test_a_chain_of_owners test_release::test_an_exception_passes test_release::test_threads
        test_release::test_in_a_child_and_at_the_end
        test_released_meanwhile::test_what_compiled_functions_return_keeps_the_memory test_retype::test_as_readonly
        test_sequences::test_a_leaf_is_looked_at_once test_buffers::test_buffers_out
        test_dlpack_import::test_legacy_tensors_are_read_only test_peers::test_numpy_both_ways
        test_rows::test_numpy_takes_what_it_can
        """,
    KEYWORDS: """
        test_dlpack_export::test_usm_as_cpu test_dlpack_export::test_device_memory_as_cpu
        test_dlpack_export::test_not_in_default_context test_peers::test_numba
        """,
    LATER: """
        test_array::test_packed_elements_backwards test_assign::test_values_as_numpy test_element_types::test_all_pairs
        test_element_types::test_numbers_become_every_type test_retype::test_matrix_transpose test_views::test_views
        test_values::test_values test_buffers::test_buffers_in
        """,
}


def reason(version, module, function):
    """Why a test is skipped with that NumPy, or None."""
    if version >= (2, 1):
        return None
    for why, names in LACKING.items():
        if f"{module}::{function}" in names.split():
            return why
    return None
