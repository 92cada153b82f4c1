package usmarray

import "github.com/usmbridge/usmbridge/dlpack"

// convertible says why elements of one type do not become those of another.
func convertible(op string, to, from DataType) error {
	if !from.IsComplex() || to.IsComplex() || to == dlpack.Bool {
		return nil
	}
	return opErr(op, ErrType, "%s to %s would drop the imaginary parts; take the real parts first (x.asnumpy().real; in Go, WrapBuffer of the same memory with the parts' type and the strides doubled)", from, to)
}
