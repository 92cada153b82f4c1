//go:build cgo && linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The short form checks the counters at the end. Growth of memory shows only in longer runs.
func TestEndure(t *testing.T) {
	require.NoError(t, runEndure(2*time.Second, false))
}
