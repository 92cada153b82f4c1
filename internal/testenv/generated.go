package testenv

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the files that tests compare with the text that generates them")

// Generated returns the text of a file that a test generates and compares. With -update it writes the file first. C code
// cannot include a header before it is written: run the test of one with CGO_ENABLED=0.
func Generated(t testing.TB, path, text string) string {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return string(Must(os.ReadFile(path))(t)) //nolint:gosec // A file of the package under test.
}
