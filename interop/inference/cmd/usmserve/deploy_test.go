package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const unitFile = "../../systemd/usmserve.service"

// What the container file copies is there, and a release of each base is named.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../container/Containerfile")
	require.NoError(t, err)
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	copied, started := 0, false
	for line := range strings.Lines(joined) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "FROM":
			require.Regexp(t, `:[0-9]`, words[1], "a release is named")
		case "COPY":
			if strings.HasPrefix(words[1], "--from") {
				continue
			}
			for _, source := range words[1 : len(words)-1] {
				_, err := os.Stat(filepath.Join("../../../..", source))
				require.NoError(t, err, line)
				copied++
			}
		case "CMD":
			var flags []string
			require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "CMD")), &flags))
			c, err := parse(flags, io.Discard)
			require.NoError(t, err)
			require.False(t, c.sharesMemory(), "not to a network")
			started = true
		}
	}
	require.Greater(t, copied, 5)
	require.True(t, started)
	// Modules that go.mod replaces are copied as well.
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`=> \.\./\.\./(\S+)`).FindAllStringSubmatch(string(module), -1) {
		require.Contains(t, joined, "COPY "+strings.Split(m[1], "/")[0]+" ")
	}
}

// The unit is one that systemd reads without a complaint.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, start)
	c, err := parse(strings.Fields(start[2]), io.Discard)
	require.NoError(t, err)
	require.True(t, isLocal(c.addr) && isLocal(c.grpc) && isLocal(c.admin), "nothing is open to a network unless the operator says so")
	require.False(t, c.sharesMemory())

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit was not checked by it")
	}
	// It wants the program to be there.
	dir := t.TempDir()
	program := filepath.Join(dir, "usmserve")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	there := filepath.Join(dir, filepath.Base(unitFile))
	require.NoError(t, os.WriteFile(there, []byte(strings.Replace(string(text), start[1], program, 1)), 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", there).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		require.NotContains(t, line, filepath.Base(unitFile), "a complaint about it, and not about another unit of this machine")
	}
}
