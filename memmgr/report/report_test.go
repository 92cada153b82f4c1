package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// lively makes a pool with buffers in use, cached blocks and waiting requests.
func lively(t testing.TB) (*memmgr.Snapshot, func()) {
	sim := memtest.NewSimulated()
	p := memmgr.NewPool(sim, memmgr.WithName("picture"), memmgr.WithTrace(1000), memmgr.WithDecay(0))
	var held []memmgr.Buffer
	for i := range 30 {
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: uintptr(1000 + i*40000), Tag: []string{"weights", "images"}[i%2]}))(t)
		held = append(held, b)
	}
	big := testenv.Must(memmgr.New(p, memmgr.Request{Size: 20 << 20}))(t)
	held = append(held, big)
	for i := 0; i < 30; i += 3 {
		held[i].Release()
		held[i] = memmgr.Buffer{}
	}
	waiting := testenv.Must(p.Allocate(memmgr.Request{Size: 500000}))(t)
	event := sim.Submit(3)
	waiting.Queue, waiting.Event = 3, sim.CopyEvent(event)
	p.Free(waiting)
	s := p.Snapshot()
	return s, func() {
		sim.Complete(event)
		sim.ReleaseEvent(event)
		for _, b := range held {
			if b.Valid() {
				b.Release()
			}
		}
		require.NoError(t, p.Close())
	}
}

func TestSnapshotAccountsForEveryByte(t *testing.T) {
	s, end := lively(t)
	defer end()
	states := map[string]int{}
	used := uint64(0)
	for _, seg := range s.Segments {
		at := seg.Address
		for _, b := range seg.Blocks {
			require.Equal(t, at, b.Address)
			at += uintptr(b.Size)
			states[b.State]++
			if b.State == memmgr.BlockActive {
				used += b.Size
				require.LessOrEqual(t, b.Requested, b.Size)
			}
		}
		require.EqualValues(t, seg.Size, at-seg.Address)
	}
	require.Equal(t, 21, states[memmgr.BlockActive])
	require.Equal(t, 1, states[memmgr.BlockPending])
	require.NotZero(t, states[memmgr.BlockFree])
	require.EqualValues(t, s.Stats.AllocatedBytes.Current, used)
	actions := map[string]int{}
	for _, e := range s.Trace {
		actions[e.Action]++
	}
	require.Equal(t, 32, actions["alloc"])
	require.Equal(t, 11, actions["free_requested"])
	require.Equal(t, 10, actions["free_completed"])
	require.Equal(t, len(s.Segments), actions["segment_alloc"])
	require.Equal(t, 1, actions["snapshot"])
}

func TestSnapshotJSONHasTheViewersKeys(t *testing.T) {
	s, end := lively(t)
	defer end()
	var out bytes.Buffer
	require.NoError(t, report.WriteJSON(&out, s))
	var got struct {
		Segments []struct {
			Address   uint64 `json:"address"`
			TotalSize uint64 `json:"total_size"`
			Allocated uint64 `json:"allocated_size"`
			Type      string `json:"segment_type"`
			Blocks    []struct {
				Size   uint64 `json:"size"`
				State  string `json:"state"`
				Frames []struct {
					Filename, Name string
					Line           int
				}
			}
		}
		Traces [][]struct {
			Action string
			Addr   uint64
			Size   uint64
			Time   int64 `json:"time_us"`
		} `json:"device_traces"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Segments, len(s.Segments))
	require.Len(t, got.Traces, 1)
	require.Len(t, got.Traces[0], len(s.Trace))
	require.Contains(t, out.String(), "report_test.lively")
	for _, seg := range got.Segments {
		sum := uint64(0)
		for _, b := range seg.Blocks {
			sum += b.Size
		}
		require.Equal(t, seg.TotalSize, sum)
	}
}

// The picture is well-formed XML whatever bytes the names and tags have.
func TestSnapshotPictureOfAnyNames(t *testing.T) {
	for _, name := range []string{"Caf\xe9", "\x00\x1b[1m", "</title>&\"", "\xff\xfe", "Café", "\uFFFE"} {
		p := memmgr.NewPool(memmgr.Host(), memmgr.WithName(name))
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 1000, Tag: name}))(t)
		var out bytes.Buffer
		require.NoError(t, report.WriteSVG(&out, p.Snapshot()))
		d := xml.NewDecoder(&out)
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "%q", name)
		}
		b.Release()
		require.NoError(t, p.Close())
	}
}

func TestSnapshotPictureIsWellFormed(t *testing.T) {
	s, end := lively(t)
	defer end()
	var out bytes.Buffer
	require.NoError(t, report.WriteSVG(&out, s))
	d := xml.NewDecoder(&out)
	rects := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	require.Greater(t, rects, 40)
	var table bytes.Buffer
	require.NoError(t, report.WriteTable(&table, s))
	for _, part := range []string{"picture", "weights", "images", "reserved", "segment", "largest free"} {
		require.Contains(t, table.String(), part)
	}
}

func TestProfileOpensInPprof(t *testing.T) {
	p := memmgr.NewPool(memmgr.Host())
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	var held []memmgr.Buffer
	for range 3 {
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 1 << 20, Tag: "profiled"}))(t)
		held = append(held, b)
	}
	defer func() {
		for _, b := range held {
			b.Release()
		}
	}()
	path := filepath.Join(t.TempDir(), "usm.pb.gz")
	f := testenv.Must(os.Create(path))(t)
	require.NoError(t, report.WriteProfile(f))
	require.NoError(t, f.Close())
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-sample_index=inuse_space", path).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "TestProfileOpensInPprof")
	require.Contains(t, string(out), "3MB")
	out, err = exec.Command("go", "tool", "pprof", "-tags", "-sample_index=inuse_objects", path).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "profiled")
}

func TestLeakReportNamesTheCaller(t *testing.T) {
	b := testenv.Must(memmgr.New(memmgr.Host(), memmgr.Request{Size: 5000, Tag: "left behind"}))(t)
	var text bytes.Buffer
	n := testenv.Must(report.WriteLeaks(&text))(t)
	require.Equal(t, 1, n)
	require.Contains(t, text.String(), "left behind")
	require.Contains(t, text.String(), "TestLeakReportNamesTheCaller")
	b.Release()
	text.Reset()
	n = testenv.Must(report.WriteLeaks(&text))(t)
	require.Zero(t, n)
	require.Empty(t, text.String())
}

// expvar publishes the pools by name; pools of the same name are added up.
func TestVars(t *testing.T) {
	for range 2 {
		p := memmgr.NewPool(memmgr.Host(), memmgr.WithName("published"))
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 100}))(t)
		defer func() {
			b.Release()
			require.NoError(t, p.Close())
		}()
	}
	p := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(t, p.Close()) }()
	all := report.Vars()
	require.EqualValues(t, 2, all["published"]["allocation.all.current"])
	require.Contains(t, all, "host memory")
	_, err := json.Marshal(all)
	require.NoError(t, err)
}
