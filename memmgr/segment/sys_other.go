//go:build !linux

package segment

import (
	"errors"
	"fmt"
	"runtime"
)

// Only Linux has memory files. createFile fails elsewhere, so the other functions are never called.
var errNoFiles = fmt.Errorf("%w: shared memory needs Linux (got %s)", errors.ErrUnsupported, runtime.GOOS)

func createFile(uintptr) (int, error)           { return -1, errNoFiles }
func sealFile(int, int) error                   { return errNoFiles }
func fileSeals(int) (int, error)                { return 0, errNoFiles }
func duplicate(int) (int, error)                { return -1, errNoFiles }
func closeFile(int)                             {}
func pagedFileSize(int) (uint64, error)         { return 0, errNoFiles }
func takePages(int, uintptr) error              { return errNoFiles }
func dropPages(int, uint64, uint64) error       { return errNoFiles }
func reserve(uintptr, uintptr) (uintptr, error) { return 0, errNoFiles }
func protect(uintptr, uintptr) error            { return errNoFiles }
func mapAnonymous(uintptr, uintptr) error       { return errNoFiles }
func dontFork(uintptr, uintptr) error           { return errNoFiles }
func ranOut(error) bool                         { return false }
func systemMappings() int                       { return 0 }
func systemDescriptors() int                    { return 0 }
func strictOvercommit() bool                    { return false }

func mapOver(uintptr, uintptr, int, uint64, bool) error { return errNoFiles }
func openNamed(string, bool) (int, error)               { return -1, errNoFiles }
func factsOf(int) (fileFacts, error)                    { return fileFacts{}, errNoFiles }
func forbidden(error) bool                              { return false }
