//go:build !cgo || !linux

// Package guardtest helps to test the guard, which this system does not have.
package guardtest
