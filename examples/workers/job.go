package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/usmbridge/usmbridge/examples/internal/photo"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed luminance.py
var luminance string

//go:embed edges.py
var edges string

// place is the memory that the processes share.
type place struct {
	rt          *syclobj.Runtime
	memory      memmgr.Resource
	description string
}

// openPlace selects shared USM of an OpenCL CPU device. If there is none, it selects memory of the host,
// and the description contains the reason.
func openPlace() (*place, error) {
	rt, err := syclobj.Open()
	if err != nil {
		return nil, fmt.Errorf("SYCL: %w", err)
	}
	p := &place{rt: rt}
	p.memory, p.description, err = sharedUSM(rt)
	if err != nil {
		p.description = "host memory (no USM: " + err.Error() + ")"
		p.memory, err = segment.Default(nil, syclobj.USMUnknown, segment.PeersWrite)
	}
	if err != nil {
		_ = rt.Close()
		return nil, err
	}
	return p, nil
}

func sharedUSM(rt *syclobj.Runtime) (memmgr.Resource, string, error) {
	for _, d := range rt.Devices() {
		if info := d.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
			continue
		}
		q, err := d.DefaultQueue()
		if err != nil {
			return nil, "", err
		}
		r, err := segment.Default(q, syclobj.USMShared, segment.PeersWrite)
		return r, "shared USM of " + d.FilterString(), err
	}
	err := errors.New("there is no OpenCL CPU device")
	if why := rt.SYCLError(); why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return nil, "", err
}

// stage is a computation and its process.
type stage struct {
	name string
	pool *workers.Pool
}

func openStage(name, source string) (*stage, error) {
	pool, err := workers.New(workers.Config{
		Modules: []workers.Module{{Name: name, Source: source}},
		Warm:    []string{name + ":prepare"},
	})
	if err != nil {
		return nil, fmt.Errorf("this example needs Python with NumPy (`make python` sets it up in .venv): %w", err)
	}
	return &stage{name, pool}, nil
}

// report describes one call of a stage.
type report struct {
	engine, reason string
	process        int64
	pointers       []uintptr
	copied         uint64
	took           time.Duration
}

// run computes out from in.
func (s *stage) run(ctx context.Context, in *usmarray.Array, name string, out *usmarray.Array) (d report, err error) {
	before, _ := s.pool.Traffic()
	began := time.Now()
	v, err := s.pool.Call(ctx, s.name+":run", in, python.Kwargs{"outputs": map[string]any{name: out}})
	if err != nil {
		return d, err
	}
	d.took = time.Since(began)
	after, _ := s.pool.Traffic()
	d.copied = after.Bytes - before.Bytes
	facts, _ := v.(map[string]any)
	d.engine, _ = facts["engine"].(string)
	d.reason, _ = facts["reason"].(string)
	d.process, _ = facts["process"].(int64)
	list, _ := facts["pointers"].([]any)
	for _, p := range list {
		at, _ := p.(int64)
		d.pointers = append(d.pointers, uintptr(at))
	}
	if len(d.pointers) != 2 {
		return d, fmt.Errorf("%s: invalid result %v; want two pointers", s.name, v)
	}
	return d, nil
}

// run processes one picture.
func run(ctx context.Context, w io.Writer, in, out string) (err error) {
	picture, name, err := photo.Read(in)
	if err != nil {
		return err
	}
	p, err := openPlace()
	if err != nil {
		return err
	}
	defer p.rt.Close()
	first, err := openStage("luminance", luminance) // both start at the same time
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.pool.Close(ctx)) }()
	second, err := openStage("edges", edges)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.pool.Close(ctx)) }()
	for _, s := range []*stage{first, second} {
		if err := s.pool.Ready(ctx); err != nil {
			return err
		}
	}

	height, width := picture.Bounds().Dy(), picture.Bounds().Dx()
	var arrays [3]*usmarray.Array
	for i, a := range []struct {
		dtype usmarray.DataType
		shape []int
	}{{usmarray.Float32, []int{height, width, 3}}, {usmarray.Float32, []int{height, width}}, {usmarray.Uint8, []int{height, width}}} {
		if arrays[i], err = usmarray.New(p.memory, a.dtype, a.shape); err != nil {
			return err
		}
		defer arrays[i].Release()
	}
	rgb, grey, result := arrays[0], arrays[1], arrays[2]
	if err := usmarray.View(rgb, func(pixels []float32) error { photo.Fill(pixels, picture); return nil }); err != nil {
		return err
	}
	fmt.Fprintf(w, "picture:   %s, %d x %d, in %s\n", name, width, height, p.description)
	a, err := first.run(ctx, rgb, "grey", grey)
	if err != nil {
		return err
	}
	b, err := second.run(ctx, grey, "edges", result)
	if err != nil {
		return err
	}
	a.print(w, "luminance")
	b.print(w, "edges")
	table(w, [3]string{"rgb", "grey", "edges"}, arrays, a, b)
	if out == "" {
		return nil
	}
	return usmarray.ReadView(result, func(pixels []uint8) error { return writePNG(out, pixels, width, height) })
}

func (d report) print(w io.Writer, stage string) {
	fmt.Fprintf(w, "%-10s by %s in process %d, %.1f ms", stage+":", d.engine, d.process, d.took.Seconds()*1000)
	if d.reason != "" {
		fmt.Fprintf(w, " (%s)", d.reason)
	}
	fmt.Fprintln(w)
}

// table prints the addresses of each buffer in both processes of an exchange.
func table(w io.Writer, names [3]string, arrays [3]*usmarray.Array, calls ...report) {
	me := os.Getpid()
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "buffer\tfrom -> to process\taddress here\taddress there\tbytes copied")
	for i, d := range calls {
		for j := range 2 {
			array, way := arrays[i+j], fmt.Sprintf("%d -> %d", me, d.process)
			if j == 1 {
				way = fmt.Sprintf("%d -> %d", d.process, me)
			}
			fmt.Fprintf(t, "%s\t%s\t%#x\t%#x\t%d of %d\n", names[i+j], way, array.Pointer(), d.pointers[j], d.copied, array.NBytes())
		}
	}
	_ = t.Flush()
}
