// Package cute describes DLPack tensors the way NVIDIA's CuTe DSL does: which
// extents and strides a compiled kernel takes as constants and which as
// arguments. It is the conversion of CuTe DSL's from_dlpack with
// mark_layout_dynamic and mark_compact_shape_dynamic, for programs that feed
// kernels compiled per layout and must know, before they call, which kernel a
// tensor needs.
//
// A conversion gives a fully static layout, printed as extents and strides in
// elements: (30,20):(20,1). Marks make parts dynamic:
//
//	MarkLayoutDynamic        (?,?):(?,1)             all but the leading stride and broadcasts
//	MarkCompactShapeDynamic  (30,?{div=4}):(?{div=4},1)  one extent, and the strides that span it
//
// [Spec] is the description alone, a value without an address; [Tensor] adds the
// memory. [Spec.Key] is the comparable key of a map of kernels.
//
// # Ownership
//
// FromDLPack takes the DLPack tensor over on success and leaves it to the caller
// on failure; Wrap borrows memory, with a function to call at the end. A Tensor
// holds its source until Release, and a Clone shares it with marks of its own: the
// source goes with the last of them. Use after Release is an error of kind
// ErrReleased, by return value where there is an error to return and by panic
// elsewhere. A Spec and a Key own nothing.
//
// # Threads
//
// A Spec or Tensor may be read by many goroutines at a time; a mark needs it
// alone. Clone and Release may run beside each other and beside reads of other
// clones.
//
// # Where CuTe DSL and its documentation differ
//
// Release 4.8.1 was recorded (testdata/cute_layouts.jsonl holds 846 cases, and
// all agree) and differs from the documentation's older pages, and the
// documentation from itself. Options choose:
//
//   - Several strides of 1 and no leading dimension given: an error by the older
//     pages (LeadingUnique, the default); by the release, the only such mode that
//     is larger than 1 leads (LeadingSkipSizeOne). For example (1,4,1,32,1):(1,1,1,4,1)
//     cannot be deduced by the first and gives (?,?,?,?,?):(?,1,?,?,?) by the second.
//   - Dynamic strides print "?" on most of the page, as the release does with
//     use_32bit_stride=True, and "?{i64}" in one place, as it does by default:
//     StridesPlain (the default), Strides32, Strides64.
//   - Strides of size-1 modes: the page has them exported as 1. That is up to the
//     producer; they are kept as given unless UnitStrides is set.
//   - The page gives (?,?,?,?):(?,?,?,1) for leading_dim=-1 of
//     (2,2,3,4):(2,1,4,12), whose last stride is 12. That contradicts its own
//     rule, which holds here: the leading dimension's stride must be 1.
//
// In these cases this package does not do what release 4.8.1 does:
//
//   - assumed_align must be a power of two that divides the address; the release
//     does not look.
//   - A layout that is not compact is refused by MarkCompactShapeDynamic
//     (ErrNotCompact). The release derives strides that are wrong.
//   - MarkLayoutDynamic makes negative strides dynamic, by the page's rule. The
//     release leaves them static: (4,6):(-6,1) becomes (?,?):(-6,1) there.
//   - A tensor of rank 0 may be marked and stays as it is. The release fails.
//   - The strides of a tensor that was marked compact are those of the layout it
//     prints. The release prints that layout and tells the source's strides.
//   - A divisibility below 1 is refused. The release ends the process on 0.
//   - Types without a CuTe name, such as complex numbers, are refused at the
//     conversion and not at the first question for the element type. Padded
//     elements of less than a byte are refused, since CuTe reads packed ones.
//   - A tensor keeps its memory alive. The release leaves it dangling.
//
// The text for several modes of stride 1 that are all larger than 1 under
// LeadingSkipSizeOne, and what marks of both kinds on one tensor give, are in
// neither source and this package's own.
//
// A mark applies to the layout as earlier marks left it: MarkLayoutDynamic
// forgets divisibilities and keeps strides of 0, MarkCompactShapeDynamic after it
// keeps all extents dynamic.
//
// Facts from CuTe DSL's page on integration with frameworks and its release
// 4.8.1; DLPack 1.3.
package cute
