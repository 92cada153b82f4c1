//go:build !linux || !cgo

package sycltest

import "errors"

// Build compiles the fake library; it needs Linux and cgo.
func Build() (string, error) { return "", errors.ErrUnsupported }

// Fake controls the fake machine of this process; there is none here.
type Fake struct{}

func attach(string) (*Fake, error) { return nil, errors.ErrUnsupported }

// Live counts nothing.
func (*Fake) Live() Objects { return Objects{} }

// Calls counts nothing.
func (*Fake) Calls(string) int { return 0 }

// Fail does nothing.
func (*Fake) Fail(string, int) {}

// Hold does nothing.
func (*Fake) Hold(bool) {}

// Pending is 0.
func (*Fake) Pending() int { return 0 }

// Release does nothing.
func (*Fake) Release(int) {}

// ReleaseAll does nothing.
func (*Fake) ReleaseAll() {}

// AsyncError does nothing.
func (*Fake) AsyncError(int, int) {}

// Used is 0.
func (*Fake) Used(int) uint64 { return 0 }
