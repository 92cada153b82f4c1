package transfertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Saver writes a file of more than two megabytes, the same one each time, from arrays that
// it makes and releases.
type Saver func(path string, inPlace bool) error

// diskEnv names the file that a child of DiskFull writes.
const diskEnv = "USMBRIDGE_TEST_DISK_FULL"

// MainSaving is Main for a package whose tests call DiskFull.
func MainSaving(m *testing.M, save Saver) {
	if path := os.Getenv(diskEnv); path != "" {
		if err := fillDisk(path, save); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Main(m)
}

// DiskFull runs the saver of MainSaving in a process in which files may not be larger than so
// many bytes: within the header, at the ends of pages and pieces, and a byte before the end.
// Every time the error says so and nothing is held or left behind, what is to be replaced
// stays, and with room again the next works.
func DiskFull(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const old = "the old one"
	for _, mode := range []string{"new", "replaced", inPlace} {
		path := filepath.Join(dir, mode)
		if mode == "replaced" {
			require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
		}
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), diskEnv+"="+path)
		text, err := cmd.CombinedOutput()
		if strings.Contains(string(text), errNoLimit) {
			t.Skipf("%s", text)
		}
		require.NoErrorf(t, err, "%s", text)
		t.Log(strings.TrimSpace(string(text)))
	}
	text, err := os.ReadFile(filepath.Join(dir, "replaced"))
	require.NoError(t, err)
	require.Equal(t, old, string(text))
	require.Equal(t, []string{"replaced"}, List(t, dir))
}

const (
	inPlace    = "in place"
	errNoLimit = "no limit on the size of files"
)
