//go:build !cgo || !linux

package memmgr

// tryDiscard has no SYCL memory to try.
func (r *usmResource) tryDiscard() error {
	if r.err != nil {
		return r.err
	}
	return noPages("built without SYCL")
}
