package transfertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
)

// Saver writes a file of more than 2 MB, with the same contents at each call, from arrays that it
// creates and releases.
type Saver func(path string, inPlace bool) error

// diskEnv is the environment variable with the path of the file that the child process of DiskFull writes.
const diskEnv = "USMBRIDGE_TEST_DISK_FULL"

// MainSaving is testsycl.Main for packages whose tests call DiskFull.
func MainSaving(m *testing.M, save Saver) {
	if path := os.Getenv(diskEnv); path != "" {
		if err := fillDisk(path, save); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testsycl.Main(m)
}

// DiskFull runs the saver of MainSaving in a process with a limit on the size of files. The limits are within
// the header, at the ends of pages and pieces, and one byte below the size of the file. Each write must
// return EFBIG, release its buffers, leave no file, and keep the file that it should replace. The next write
// without a limit must succeed.
func DiskFull(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const old = "the old contents"
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
	errNoLimit = "cannot limit the size of files"
)
