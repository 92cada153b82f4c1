package cute

import (
	"math"

	"github.com/usmbridge/usmbridge/dlpack"
)

// MaxRank is the largest number of modes a tensor may have.
const MaxRank = 64

// Deduce as the leading dimension of MarkLayoutDynamic selects the dimension by its stride.
const Deduce = math.MinInt

// StrideWidth is the width of a kernel's dynamic strides: CuTe DSL's use_32bit_stride. It has no effect on
// a layout without dynamic strides.
type StrideWidth uint8

const (
	// StridesPlain leaves the width unspecified: dynamic strides print as "?" and
	// "?{div=4}", the form of CuTe DSL's documentation. They are 64 bits wide.
	StridesPlain StrideWidth = iota
	// Strides64 is use_32bit_stride=False: "?{i64}" and "?{i64 div=4}".
	Strides64
	// Strides32 is use_32bit_stride=True: "?" and "?{div=4}". Marking a layout
	// dynamic then fails unless its extent in memory fits int32.
	Strides32
)

// LeadingRule determines how MarkLayoutDynamic deduces the leading dimension if several modes have stride
// 1. CuTe DSL changed its rule; both are available.
type LeadingRule uint8

const (
	// LeadingUnique is the default and the older documented rule: several strides
	// of 1 are an error.
	LeadingUnique LeadingRule = iota
	// LeadingSkipSizeOne is the rule of release 4.8.1: modes of size 1 are
	// ignored, and the only mode of stride 1 that is larger than 1 leads.
	LeadingSkipSizeOne
)

// MemSpace is a memory space of CuTe.
type MemSpace uint8

const (
	// MemSpaceByDevice in Options derives the memory space from the tensor's
	// device: Generic for kDLCPU, kDLCUDAHost and kDLROCMHost, GMem for all
	// others. It is never the memory space of a Spec.
	MemSpaceByDevice MemSpace = iota
	// Generic is host memory ("generic").
	Generic
	// GMem is a device's global memory ("gmem").
	GMem
)

// String returns CuTe's name of the memory space.
func (m MemSpace) String() string {
	switch m {
	case Generic:
		return "generic"
	case GMem:
		return "gmem"
	}
	return "by device"
}

// Options are the choices of a conversion, a value that owns nothing. The zero value is the default:
// natural alignment, strides of unspecified width, a unique leading dimension, the memory space of the
// device, and strides as the producer gave them.
type Options struct {
	// AssumedAlign is the alignment in bytes that a kernel may assume of the
	// address: a power of two that divides it. Zero stands for the natural
	// alignment of the element type (its size in bytes, at least 1).
	AssumedAlign int64
	// Strides is the width of dynamic strides.
	Strides StrideWidth
	// Leading is the rule for deducing the leading dimension.
	Leading LeadingRule
	// UnitStrides replaces the stride of every mode of size 1 by 1 before
	// anything else, as some producers do. No address changes.
	UnitStrides bool
	// MemSpace overrides the memory space that the device implies. For example, host
	// USM is a kDLOneAPI tensor in host memory.
	MemSpace MemSpace
}

// check refuses values outside the enumerations, so that none of them becomes part of a cache key.
func (o *Options) check() error {
	switch {
	case o.Strides > Strides32:
		return fail(ErrOption, "stride width %d is unknown: use StridesPlain, Strides64 or Strides32", o.Strides)
	case o.Leading > LeadingSkipSizeOne:
		return fail(ErrOption, "leading rule %d is unknown: use LeadingUnique or LeadingSkipSizeOne", o.Leading)
	case o.MemSpace > GMem:
		return fail(ErrOption, "memory space %d is unknown: use MemSpaceByDevice, Generic or GMem", o.MemSpace)
	case o.AssumedAlign < 0 || o.AssumedAlign&(o.AssumedAlign-1) != 0:
		return fail(ErrAlignment, "assumed_align %d is not a power of two: give the number of bytes the address is a multiple of, or 0 for the element's natural alignment", o.AssumedAlign)
	}
	return nil
}

// spaceOf returns the memory space of a tensor on the device.
func (o *Options) spaceOf(d dlpack.Device) MemSpace {
	if o.MemSpace != MemSpaceByDevice {
		return o.MemSpace
	}
	if d.HostReadable() {
		return Generic
	}
	return GMem
}
