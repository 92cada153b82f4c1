package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKnown(t *testing.T) {
	names := []string{"Inference.example", "whole.example.", ""}
	for _, host := range []string{"127.0.0.1:80", "127.0.0.1", "[::1]:80", "[::1]", "localhost", "LocalHost:1", "localhost.:8000",
		"inference.example", "INFERENCE.example.:443", "whole.example", "whole.example.:1"} {
		require.True(t, Known(host, names), host)
	}
	for _, host := range []string{"", ".", "evil.example", "localhost.evil.example", "inference.example.evil", "inference.example..", "127.0.0.1.evil:80"} {
		require.False(t, Known(host, names), host)
	}
}
