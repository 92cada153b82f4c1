//go:build !cgo || !linux

package ownertest

// Supported tells whether the helpers are there.
const Supported = false
