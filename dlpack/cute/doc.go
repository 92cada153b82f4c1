// Package cute describes DLPack tensors as NVIDIA's CuTe DSL does: which extents and strides a compiled
// kernel takes as constants and which as arguments. It implements CuTe DSL's from_dlpack,
// mark_layout_dynamic and mark_compact_shape_dynamic for programs that call kernels compiled per layout
// and must know, before the call, which kernel a tensor needs.
//
// A conversion gives a fully static layout, printed as extents and strides in elements: (30,20):(20,1).
// Marks make parts of it dynamic:
//
//	MarkLayoutDynamic        (?,?):(?,1)             all but the leading stride and broadcasts
//	MarkCompactShapeDynamic  (30,?{div=4}):(?{div=4},1)  one extent, and the strides that span it
//
// [NewSpec] describes a tensor; [Spec] is a value without an address. [Spec.Key] is the comparable key of
// a map of kernels. A Spec and a Key own nothing: keep the tensor until the kernel has ended.
//
// # Threads
//
// Several goroutines may read a Spec at a time. A mark needs exclusive access.
//
// # Differences between CuTe DSL and its documentation
//
// Release 4.8.1 was recorded: testdata/cute_layouts.jsonl holds 846 cases, and all agree with this
// package. The release differs from older pages of the documentation, and the documentation contradicts
// itself. Options choose:
//
//   - Several strides of 1 without a given leading dimension are an error by the older pages
//     (LeadingUnique, the default). In the release, the only such mode that is larger than 1 leads
//     (LeadingSkipSizeOne). For example (1,4,1,32,1):(1,1,1,4,1) is an error by the first rule and
//     gives (?,?,?,?,?):(?,1,?,?,?) by the second.
//   - Dynamic strides print as "?" on most of the page, as in the release with use_32bit_stride=True,
//     and as "?{i64}" in one place, as in the release by default: StridesPlain (the default), Strides32,
//     Strides64.
//   - Strides of modes of size 1: by the page they are exported as 1. The producer decides; they are
//     kept as given unless UnitStrides is set.
//   - The page gives (?,?,?,?):(?,?,?,1) for leading_dim=-1 of (2,2,3,4):(2,1,4,12), whose last stride
//     is 12. That contradicts the page's own rule that the leading dimension has stride 1, which this
//     package follows.
//
// In these cases this package deliberately differs from release 4.8.1:
//
//   - assumed_align must be a power of two that divides the address. The release does not check it.
//   - MarkCompactShapeDynamic refuses a layout that is not compact (ErrNotCompact). The release derives
//     wrong strides.
//   - MarkLayoutDynamic makes negative strides dynamic, by the page's rule. The release leaves them
//     static: (4,6):(-6,1) becomes (?,?):(-6,1) there.
//   - A tensor of rank 0 may be marked, which changes nothing. The release fails.
//   - The strides of a tensor that was marked compact are those of the printed layout. The release
//     prints that layout and returns the source's strides.
//   - A divisibility below 1 is an error. The release ends the process on 0.
//   - Types without a CuTe name, such as complex numbers, are refused at the conversion, not at the
//     first query of the element type. Padded sub-byte elements are refused, because CuTe reads packed
//     ones.
//
// Neither source defines the error text for several modes of stride 1 that are all larger than 1 under
// LeadingSkipSizeOne, or the result of both kinds of marks on one tensor; both are this package's own.
//
// A mark applies to the layout as earlier marks left it: MarkLayoutDynamic discards divisibilities and
// keeps strides of 0, and a later MarkCompactShapeDynamic keeps all extents dynamic.
//
// Sources: CuTe DSL's page on integration with frameworks and its release 4.8.1; DLPack 1.3.
package cute
