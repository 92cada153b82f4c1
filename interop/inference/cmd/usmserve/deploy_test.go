package main

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

const unitFile = "../../systemd/usmserve.service"

// isLocal reports whether only this machine can connect to an address.
func isLocal(address string) bool {
	if address == none || strings.HasPrefix(address, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// systemd accepts the unit file without warnings, and its flags expose nothing to a network.
func TestUnit(t *testing.T) {
	text := testenv.Must(os.ReadFile(unitFile))(t)
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, start)
	c := testenv.Must(parse(strings.Fields(start[2]), io.Discard))(t)
	require.True(t, isLocal(c.addr) && isLocal(c.grpc) && isLocal(c.admin), "nothing is open to a network unless the operator says so")
	require.False(t, c.sharesMemory())

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit was not checked by it")
	}
	// systemd-analyze checks that the program exists.
	dir := t.TempDir()
	program := filepath.Join(dir, "usmserve")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	there := filepath.Join(dir, filepath.Base(unitFile))
	require.NoError(t, os.WriteFile(there, []byte(strings.Replace(string(text), start[1], program, 1)), 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", there).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		require.NotContains(t, line, filepath.Base(unitFile), "a warning about this unit, not about another unit of the machine")
	}
}
