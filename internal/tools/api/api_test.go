// Package api compares the functions, methods and types that go doc shows with surface.txt, so that they change
// only on purpose: go test ./internal/tools/api -update writes the list.
package api

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

var names = regexp.MustCompile(`(?m)^(func |type |\t[A-Z]\w*\().*\n`) // the last is a method of an interface

func TestSurface(t *testing.T) {
	t.Setenv("GOWORK", "off") // the packages of this module only
	const module = "github.com/usmbridge/usmbridge/"
	paths, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, module+"...").Output()
	require.NoError(t, err)
	text := ""
	for path := range strings.FieldsSeq(strings.ReplaceAll(string(paths), module, "")) {
		if !strings.Contains("/"+path, "/internal/") && !strings.HasSuffix(path, "test") {
			doc, err := exec.Command("go", "doc", "-all", module+path).Output()
			require.NoError(t, err)
			text += "# " + path + "\n" + strings.Join(names.FindAllString(string(doc), -1), "") + "\n"
		}
	}
	require.Equal(t, testenv.Generated(t, "surface.txt", text), text, "if the change is intended: go test ./internal/tools/api -update, and CHANGELOG.md")
}
