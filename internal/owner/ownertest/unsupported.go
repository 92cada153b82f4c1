//go:build !cgo || !linux

package ownertest

// Supported reports whether this build has the helpers.
const Supported = false
