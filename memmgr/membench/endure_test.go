//go:build cgo && linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The short form: what counters say at the end. That memory does not grow takes longer to say.
func TestEndure(t *testing.T) {
	require.NoError(t, runEndure(2*time.Second, false))
}
