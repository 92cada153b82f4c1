package hosts

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckName(t *testing.T) {
	names := []string{"Inference.example", "whole.example.", ""}
	for _, host := range []string{"127.0.0.1:80", "127.0.0.1", "[::1]:80", "[::1]", "localhost", "LocalHost:1", "localhost.:8000",
		"inference.example", "INFERENCE.example.:443", "whole.example", "whole.example.:1"} {
		require.NoError(t, CheckName(&http.Request{Host: host}, names), host)
	}
	for _, host := range []string{"", ".", "evil.example", "localhost.evil.example", "inference.example.evil", "inference.example..", "127.0.0.1.evil:80"} {
		require.Error(t, CheckName(&http.Request{Host: host}, names), host)
	}
}
