package dlpack

import "fmt"

// badForm reports whether checkForm finds anything; small enough to be inlined.
func (v *View) badForm() bool {
	return v == nil || v.Strides != nil && len(v.Strides) != len(v.Shape) || len(v.Shape) > MaxNDim
}

// checkForm tests what only a Go view can get wrong, before C looks at it.
func (v *View) checkForm(op string) error {
	if v == nil {
		return &Error{Op: op, Err: ErrNull, Detail: "the view is nil: say what memory it is about"}
	}
	if v.Strides != nil && len(v.Strides) != len(v.Shape) {
		return &Error{Op: op, Err: ErrStrides,
			Detail: fmt.Sprintf("%d strides for %d dimensions: give one stride a dimension, or nil for C order", len(v.Strides), len(v.Shape))}
	}
	if len(v.Shape) > MaxNDim {
		return &Error{Op: op, Err: ErrShape,
			Detail: fmt.Sprintf("ndim is %d: a tensor has 0 to %d dimensions; reshape it", len(v.Shape), MaxNDim)}
	}
	return nil
}
