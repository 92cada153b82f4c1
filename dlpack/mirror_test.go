package dlpack

import "unsafe"

// MirrorFact is a C expression and the value that Go expects.
type MirrorFact struct {
	Expression string
	Value      int64
}

// MirrorFacts are the layouts of the C structs that Go looks into.
func MirrorFacts() []MirrorFact {
	var s slot
	var span Span
	var t ctensor
	return []MirrorFact{
		{"sizeof(usmb_dl_slot)", int64(unsafe.Sizeof(s))},
		{"offsetof(usmb_dl_slot, word)", int64(unsafe.Offsetof(s.word))},
		{"offsetof(usmb_dl_slot, next)", int64(unsafe.Offsetof(s.next))},
		{"offsetof(usmb_dl_slot, index)", int64(unsafe.Offsetof(s.index))},
		{"offsetof(usmb_dl_slot, managed)", int64(unsafe.Offsetof(s.managed))},
		{"offsetof(usmb_dl_slot, more)", int64(unsafe.Offsetof(s.more))},
		{"offsetof(usmb_dl_slot, has_strides)", int64(unsafe.Offsetof(s.hasStrides))},
		{"offsetof(usmb_dl_slot, t)", int64(unsafe.Offsetof(s.t))},
		{"offsetof(usmb_dl_slot, own)", int64(unsafe.Offsetof(s.own))},
		{"offsetof(usmb_dl_slot, drop)", int64(unsafe.Offsetof(s.drop))},
		{"offsetof(usmb_dl_slot, owner)", int64(unsafe.Offsetof(s.owner))},
		{"offsetof(usmb_dl_slot, dims)", int64(unsafe.Offsetof(s.dims))},
		{"USMB_DL_SLOT_NDIM", slotNDim},
		{"offsetof(usmb_dl_slot, flags)", int64(unsafe.Offsetof(s.flags))},
		{"offsetof(usmb_dl_slot, versioned)", int64(unsafe.Offsetof(s.versioned))},
		{"offsetof(usmb_dl_slot, version)", int64(unsafe.Offsetof(s.version))},
		{"offsetof(usmb_dl_slot, span)", int64(unsafe.Offsetof(s.span))},
		{"sizeof(usmb_dl_span)", int64(unsafe.Sizeof(span))},
		{"offsetof(usmb_dl_span, first)", int64(unsafe.Offsetof(span.First))},
		{"offsetof(usmb_dl_span, nelem)", int64(unsafe.Offsetof(span.Count))},
		{"offsetof(usmb_dl_span, lo)", int64(unsafe.Offsetof(span.Lo))},
		{"offsetof(usmb_dl_span, hi)", int64(unsafe.Offsetof(span.Hi))},
		{"offsetof(usmb_dl_span, itembits)", int64(unsafe.Offsetof(span.ItemBits))},
		{"offsetof(usmb_dl_span, contig)", int64(unsafe.Offsetof(span.contig))},
		{"offsetof(usmb_dl_span, offset)", int64(unsafe.Offsetof(span.ByteOffset))},
		{"sizeof(usmb_dl_tensor)", int64(unsafe.Sizeof(t))},
		{"offsetof(usmb_dl_tensor, shape)", int64(unsafe.Offsetof(t.shape))},
		{"offsetof(usmb_dl_tensor, strides)", int64(unsafe.Offsetof(t.strides))},
		{"offsetof(usmb_dl_tensor, byte_offset)", int64(unsafe.Offsetof(t.byteOffset))},
		{"sizeof(usmb_dl_device)", int64(unsafe.Sizeof(t.device))},
		{"sizeof(usmb_dl_dtype)", int64(unsafe.Sizeof(t.dtype))},
	}
}
