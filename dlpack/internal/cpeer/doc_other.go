//go:build !linux || !cgo

// Package cpeer is empty in this build; see cpeer.go.
package cpeer
