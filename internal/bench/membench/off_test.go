//go:build cgo && linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChecksAreFound checks that the list of expressions that off removes is that of the source.
func TestChecksAreFound(t *testing.T) {
	_, err := withoutChecks("../../..", t.TempDir())
	require.NoError(t, err)
}
