package main

import (
	_ "embed"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/examples/internal/photo"
	"github.com/usmbridge/usmbridge/examples/internal/photo/phototest"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

//go:embed testdata/reference.py
var reference string

// open returns the bridge of this process, because Python starts only once.
var open = sync.OnceValues(func() (*bridge, error) { return openBridge(io.Discard) })

// needBridge returns the bridge. If there is no Python with NumPy, it ends the test.
func needBridge(t *testing.T) *bridge {
	t.Helper()
	b, err := open()
	if err != nil {
		testenv.Missing(t, err, testenv.Python)
	}
	if testenv.Declared(testenv.SYCL) {
		require.True(t, b.dpctl, "no SYCL device")
	}
	return b
}

// expected computes the edges of a picture in Python, with NumPy alone.
func expected(t *testing.T, py *python.Interpreter, p image.Image) []byte {
	t.Helper()
	size := p.Bounds().Size()
	values := make([]float32, size.X*size.Y*3)
	photo.Fill(values, p)
	pixels := make([]byte, len(values))
	for i, v := range values {
		pixels[i] = byte(v)
	}
	out := testenv.Must(py.Run(reference, python.Vars{"pixels": pixels, "height": size.Y, "width": size.X}, "edges"))(t)
	return out["edges"].([]byte)
}

// requireClose requires that two grey pictures differ by at most 1 of 255.
func requireClose(t *testing.T, want, got []uint8) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if d := int(want[i]) - int(got[i]); d < -1 || d > 1 {
			require.Failf(t, "the result differs", "pixel %d is %d, NumPy computes %d", i, got[i], want[i])
		}
	}
}

// noise returns a picture of random pixels.
func noise(w, h int) *image.NRGBA {
	p := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range p.Pix {
		p.Pix[i] = byte(r.UintN(256)) | byte(i/3&1)*255 // alpha varies too, and is ignored
	}
	return p
}

func TestResultEqualsNumPy(t *testing.T) {
	b := needBridge(t)
	pictures := map[string]image.Image{
		"pattern": phototest.Pattern(150, 103), "noise": noise(97, 61), "one pixel": phototest.Pattern(1, 1),
		"a row": phototest.Pattern(64, 1), "a column": phototest.Pattern(1, 64), "two by two": noise(2, 2),
	}
	if path, err := photo.OfGo(); err == nil {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		pictures["photograph"], err = jpeg.Decode(f)
		require.NoError(t, err)
	}
	for name, p := range pictures {
		t.Run(name, func(t *testing.T) {
			j := testenv.Must(b.process(p))(t)
			defer j.release()
			pixels := testenv.Must(j.pixels())(t)
			requireClose(t, expected(t, b.py, p), pixels)
		})
	}
}

func TestNothingIsCopied(t *testing.T) {
	b := needBridge(t)
	j := testenv.Must(b.process(phototest.Pattern(150, 103)))(t)
	defer j.release()
	require.Len(t, j.handovers, 6)
	sizes := map[string]int{"picture": 150 * 103 * 12, "luminance": 150 * 103 * 4, "edges": 150 * 103}
	protocols := map[string]bool{}
	back := 0
	for _, h := range j.handovers {
		require.NotZero(t, h.here)
		require.Equal(t, h.here, h.there, "%s, %s -> %s", h.buffer, h.from, h.to)
		require.Zero(t, h.copied())
		require.Equal(t, sizes[h.buffer], h.bytes)
		require.Positive(t, h.took)
		protocols[h.protocol] = true
		if h.to == "Go" {
			back++
		}
	}
	require.Equal(t, 2, back)
	require.True(t, protocols["DLPack"])
	require.Equal(t, b.dpctl, protocols["__sycl_usm_array_interface__"])
	require.Equal(t, uintptr(j.edges.Pointer()), uintptr(j.returned.Pointer()), "Go writes the file from the memory that it allocated")
	if b.dpctl {
		require.Equal(t, b.queue.Device().FilterString(), j.device)
		require.Equal(t, syclobj.USMShared, j.picture.Place().Kind())
	} else {
		require.Equal(t, "host", j.device)
	}
}

func TestReleasesEverything(t *testing.T) {
	b := needBridge(t)
	live := func() int { n, _ := memmgr.LiveCount(); return n }
	warm, err := b.process(phototest.Pattern(8, 8))
	require.NoError(t, err)
	warm.release()
	settled := func(n int) func() bool {
		return func() bool {
			_, err := b.py.Run("import gc; gc.collect()", nil)
			memmgr.Flush()
			return err == nil && live() == n
		}
	}
	require.Eventually(t, settled(0), time.Minute, 10*time.Millisecond, "%d buffers live", live())
	for range 3 {
		j := testenv.Must(b.process(phototest.Pattern(64, 32)))(t)
		require.GreaterOrEqual(t, live(), 3)
		j.release()
	}
	require.Eventually(t, settled(0), time.Minute, 10*time.Millisecond, "%d buffers live", live())
}

// programDir is the directory of the command that program built, or empty.
var programDir string

// program builds the command once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "picture-test-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "picture")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: "go build: " + string(out), Err: err}
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// start runs the command with additional environment variables and returns its output.
func start(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func readGrey(t *testing.T, path string) []uint8 {
	t.Helper()
	f := testenv.Must(os.Open(path))(t)
	defer f.Close()
	p := testenv.Must(png.Decode(f))(t)
	return p.(*image.Gray).Pix
}

func TestProgram(t *testing.T) {
	b := needBridge(t)
	p := noise(120, 80)
	in := phototest.Write(t, "in.png", phototest.PNG(t, p))
	want := expected(t, b.py, p)
	device := "host"
	if b.dpctl {
		device = b.queue.Device().FilterString()
	}
	tests := []struct {
		name string
		env  []string
		want []string
	}{
		{"default", nil, []string{"device:  " + device, "result:  "}},
		{"without SYCL", []string{"USMBRIDGE_SYCL=off"}, []string{"no SYCL: ", "device:  host", "luminance by NumPy"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "edges.png")
			text, err := start(t, test.env, "-in", in, "-out", out)
			require.NoError(t, err, text)
			for _, want := range test.want {
				require.Contains(t, text, want)
			}
			require.Equal(t, 6, strings.Count(text, " 0 of "), text)
			requireClose(t, want, readGrey(t, out))
			require.Equal(t, []string{"edges.png"}, names(t, filepath.Dir(out)))
		})
	}
}

func TestProgramErrors(t *testing.T) {
	in := phototest.Write(t, "in.png", phototest.PNG(t, phototest.Pattern(8, 8)))
	cut := phototest.Write(t, "cut.png", phototest.PNG(t, phototest.Pattern(80, 80))[:200])
	dir := t.TempDir()
	out := filepath.Join(dir, "edges.png")
	tests := []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no such picture", nil, []string{"-in", filepath.Join(dir, "none.png"), "-out", out}, "no such file"},
		{"a damaged picture", nil, []string{"-in", cut, "-out", out}, "cannot be read"},
		{"no directory for the result", nil, []string{"-in", in, "-out", filepath.Join(dir, "none", "x.png")}, "cannot be written"},
		{"no name for the result", []string{"USMBRIDGE_PYTHON=off"}, []string{"-in", in, "-out", ""}, "OUT is empty"},
		{"no Python", []string{"USMBRIDGE_PYTHON=off"}, []string{"-in", in, "-out", out}, "make python"},
		{"a Python that is not an executable", []string{"USMBRIDGE_PYTHON=" + in}, []string{"-in", in, "-out", out}, in},
		{"a SYCL library that is a picture", []string{"USMBRIDGE_SYCL=" + in}, []string{"-in", in, "-out", out}, "SYCL: "},
		{"too many arguments", nil, []string{"a", "b"}, "-in picture"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text, err := start(t, test.env, test.args...)
			var status *exec.ExitError
			require.ErrorAs(t, err, &status, text)
			require.Positive(t, status.ExitCode(), "the program exits without a signal: %s", text)
			require.Contains(t, text, test.want)
			require.Empty(t, names(t, dir))
		})
	}
}
