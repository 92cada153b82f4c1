package models

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := Read(dir)
	require.ErrorContains(t, err, "is refused: ")
	require.ErrorContains(t, err, "no model")
	write("b.py", "# b\n")
	write("a_1.py", "# a\n")
	write("_helper.py", "x")
	write(".hidden.py", "x")
	write("README.md", "x")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "__pycache__"), 0o700))
	got, err := Read(dir)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "a_1", got[0].Name)
	require.Equal(t, "# b\n", got[1].Text)
	require.Equal(t, "b.py", filepath.Base(got[1].File))
	link := filepath.Join(t.TempDir(), "models")
	require.NoError(t, os.Symlink(dir, link))
	_, err = Read(link)
	require.NoError(t, err, "what counts is where it leads")
	_, err = Read(filepath.Join(dir, "no"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestReadRefuses checks that model files that another user could change, and entries that are not
// regular files, are rejected with an error that names the entry.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		says   string
	}{
		"file of the group's":      {func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir+"/m.py", 0o620)) }, "m.py is refused: others can write"},
		"file of everybody's":      {func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir+"/m.py", 0o602)) }, "chmod go-w"},
		"directory of the group's": {func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir, 0o770)) }, "others can write"},
		"sticky directory":         {func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky)) }, "others can write"},
		"directory above":          {func(t *testing.T, dir string) { require.NoError(t, os.Chmod(filepath.Dir(dir), 0o777)) }, "others can write"},
		"helper of the group's": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir+"/package", 0o700))
			require.NoError(t, os.WriteFile(dir+"/package/_h.py", nil, 0o600))
			require.NoError(t, os.Chmod(dir+"/package/_h.py", 0o620))
		}, "_h.py is refused: others can write"},
		"link to a package": {func(t *testing.T, dir string) { require.NoError(t, os.Symlink("/tmp", dir+"/package")) }, "package is refused: it is a link"},
		"link":              {func(t *testing.T, dir string) { require.NoError(t, os.Symlink("m.py", dir+"/n.py")) }, "n.py is refused: it is a link"},
		"file for a directory": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "above", "models")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			require.NoError(t, os.WriteFile(dir+"/m.py", []byte("x = 1"), 0o600))
			c.change(t, dir)
			_, err := Read(dir)
			require.ErrorContains(t, err, "is refused: ")
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestProblems checks that a file that cannot be a model is a source with a reason, and does not stop others.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	write("m.py", []byte("x = 1"))
	for _, name := range []string{"1", "a.b", "resnet-50_v1.5"} {
		write(name+".py", nil)
	}
	require.NoError(t, os.Mkdir(dir+"/directory.py", 0o700))
	require.NoError(t, syscall.Mkfifo(dir+"/fifo.py", 0o600))
	write("a b.py", nil)
	write("é.py", nil)
	write("\xff.py", nil)
	write("-.py", nil)
	write(strings.Repeat("a", 129)+".py", nil)
	write("binary.py", []byte{0xff})
	got, err := Read(dir)
	require.NoError(t, err)
	problems := map[string]string{}
	for _, s := range got {
		problems[s.Name] = s.Problem
	}
	const name = "its name is not valid"
	require.Len(t, problems, 12)
	for model, want := range map[string]string{"m": "", "1": "", "a.b": "", "resnet-50_v1.5": "", "directory": "not a regular file", "fifo": "not a regular file",
		"a b": name, `\u00e9`: name, `\xff`: name, "-": name, strings.Repeat("a", 129): name, "binary": "not UTF-8"} {
		require.Contains(t, problems, model)
		require.Contains(t, problems[model], want)
		require.Equal(t, want == "", problems[model] == "", model)
	}
}

// TestDefinition checks that a model that cannot be called is a broken one.
func TestDefinition(t *testing.T) {
	source := Source{Name: "m", File: "m.py"}
	const x, y = `"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1]}]`, `"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]`
	d := Definition(`{"Function":"module:slot_0.infer","Meta":{`+x+","+y+`}}`, source)
	require.Equal(t, "module:slot_0.infer", d.Function)
	require.Equal(t, oip.FP32, d.Meta.Outputs[0].Datatype)
	require.Empty(t, d.Broken)
	for text, want := range map[string]string{
		"": "invalid description", `"x"`: "invalid description", "[]": "invalid description", "{}": "invalid description",
		`{"Broken":"broken","Detail":"line 1","Meta":{"name":"m"}}`:                                    "line 1",
		`{"Broken":"broken","Meta":{"name":"m"}}`:                                                      "broken",
		`{"Meta":{` + x + `,"outputs":[{"name":"y","datatype":"BYTES","shape":[-1]}]}}`:                "BYTES",
		`{"Bound":true,"Meta":{` + x + `,"outputs":[{"name":"y","datatype":"FP32","shape":[-1,-1]}]}}`: "free extents",
	} {
		d := Definition(text, source)
		require.NotEmpty(t, d.Broken, text)
		require.Equal(t, "m", d.Meta.Name)
		require.Contains(t, d.Detail, "m.py: ")
		require.Contains(t, d.Detail, want)
	}
}
