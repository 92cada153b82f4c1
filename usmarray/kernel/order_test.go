package kernel_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// The tests of this file share memory between two arrays, launch a slow kernel on one of them and access
// the other one. The access must see the kernel's values. Each round writes another value, because
// recycled memory could contain the expected one already.

const (
	orderRounds   = 3
	orderElements = 64
	// spinTurns makes the slow kernel take some milliseconds. No result depends on the time: if the kernel
	// is too fast, a wrong order is only harder to see.
	spinTurns = 1 << 20
	// added is the difference between the value that an access writes and the kernel's value.
	added = 1000
)

// The kernels run as one work-item, so that all elements change late. The state of xorshift is never 0.
const orderSource = `
kernel void slow(global int *x, long stride, int n, int v, uint turns) {
	uint s = turns;
	for (uint i = 0; i < turns; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }
	for (int i = 0; i < n; i++) x[i * stride] = v + (s == 0);
}
kernel void add(global int *x, long stride, int n, int v) { for (int i = 0; i < n; i++) x[i * stride] += v; }
kernel void gather(global const int *x, long stride, int n, global int *y) { for (int i = 0; i < n; i++) y[i] = x[i * stride]; }
`

var orderKinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

type namedQueue struct {
	name string
	*syclobj.Queue
}

// scene has the objects that the rounds of a test share.
type scene struct {
	rt                   *syclobj.Runtime
	q                    *syclobj.Queue
	queues               []namedQueue   // for the slow kernel
	probe                *syclobj.Queue // an in-order queue without other work
	slow, add, gather    *syclobj.Kernel
	host, shared, device memmgr.Resource

	t      testing.TB // the current test
	value  int32      // of the current round
	owned  []*usmarray.Array
	events []*syclobj.Event
}

func newScene(t *testing.T) *scene {
	rt, q := testsycl.Need(t)
	p := build(t, q, orderSource)
	return &scene{
		rt: rt, q: q, t: t,
		queues: []namedQueue{{"default", q}, {"in-order", testsycl.NewQueue(t, rt, syclobj.InOrder)}, {"out-of-order", testsycl.NewQueue(t, rt, syclobj.OutOfOrder)}},
		probe:  testsycl.NewQueue(t, rt, syclobj.InOrder),
		slow:   take(t, p, "slow"), add: take(t, p, "add"), gather: take(t, p, "gather"),
		host: memmgr.Host(), shared: resource(t, q, syclobj.USMShared), device: resource(t, q, syclobj.USMDevice),
	}
}

// own releases an array at the end of the round.
func (s *scene) own(a *usmarray.Array, err error) *usmarray.Array {
	s.t.Helper()
	require.NoError(s.t, err)
	s.owned = append(s.owned, a)
	return a
}

func (s *scene) fromDLPack(x dlpack.Tensor, err error) *usmarray.Array {
	s.t.Helper()
	require.NoError(s.t, err)
	return s.own(usmarray.FromDLPack(s.rt, x))
}

// fromDictionary imports the dictionary of an array after an edit.
func (s *scene) fromDictionary(a *usmarray.Array, edit func(*usmarray.USMInterface)) *usmarray.Array {
	s.t.Helper()
	d := testenv.Must(a.USMInterface())(s.t)
	if edit != nil {
		edit(&d)
	}
	return s.own(usmarray.FromUSMInterface(s.rt, &d, nil))
}

// inMiddle returns a view of some elements of an array.
func (s *scene) inMiddle(a *usmarray.Array, step int) *usmarray.Array {
	s.t.Helper()
	return s.own(a.Index(usmarray.IndexRange(3, orderElements-5).By(step)))
}

// launchOn launches a kernel of orderSource on an array. Its event is closed at the end of the round.
func (s *scene) launchOn(q *syclobj.Queue, k *syclobj.Kernel, x *usmarray.Array, more ...kernel.Arg) *syclobj.Event {
	s.t.Helper()
	arg := kernel.ReadWrite(x).Strided()
	if k == s.gather {
		arg = kernel.Read(x).Strided()
	}
	args := append([]kernel.Arg{arg, kernel.Scalar(int64(x.Strides()[0])), kernel.Scalar(int32(x.Size()))}, more...)
	work := testenv.Must(kernel.Start(q, k, kernel.Over(1), args...))(s.t)
	s.events = append(s.events, work)
	return work
}

// launchSlow launches the slow kernel, which writes the value of the round.
func (s *scene) launchSlow(q *syclobj.Queue, x *usmarray.Array) *syclobj.Event {
	s.t.Helper()
	return s.launchOn(q, s.slow, x, kernel.Scalar(s.value), kernel.Scalar(uint32(spinTurns)))
}

// raw reads the elements without any wait, as a consumer does.
func (s *scene) raw(x *usmarray.Array) []int32 {
	s.t.Helper()
	return s.rawAt(x.Pointer(), x)
}

func (s *scene) rawAt(p unsafe.Pointer, x *usmarray.Array) []int32 {
	s.t.Helper()
	stride := x.Strides()[0]
	span := make([]int32, (x.Size()-1)*stride+1)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&span[0])), 4*len(span))
	if x.Buffer().HostReadable() {
		copy(bytes, unsafe.Slice((*byte)(p), len(bytes)))
	} else {
		require.NoError(s.t, s.probe.Read(bytes, p))
	}
	values := make([]int32, x.Size())
	for i := range values {
		values[i] = span[i*stride]
	}
	return values
}

// offset returns the index of the first element in the buffer.
func offset(x *usmarray.Array) int { return int(uintptr(x.Pointer())-x.Buffer().Address()) / 4 }

// printed returns the numbers in a printed array.
func (s *scene) printed(text string, err error) (values []int32) {
	require.NoError(s.t, err)
	for _, word := range strings.Fields(strings.Trim(text, "[]")) {
		values = append(values, int32(testenv.Must(strconv.Atoi(word))(s.t)))
	}
	return values
}

// allAre reports whether there are n values and all of them are v.
func allAre(values []int32, n int, v int32) bool {
	return slices.Equal(values, slices.Repeat([]int32{v}, n))
}

// A sharing makes two arrays x and y of the same elements of a.
type sharing struct {
	name     string
	kind     syclobj.USMKind // the only kind for which it works; 0 for all
	readOnly bool            // y is read-only
	one      bool            // x and y are one array
	gaps     bool            // the elements have gaps
	make     func(s *scene, a *usmarray.Array) (x, y *usmarray.Array)
}

var byDLPack = []sharing{
	{name: "DLPack", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) { return a, s.fromDLPack(a.DLPack()) }},
	{name: "legacy", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{Legacy: true}))
	}},
	{name: "versioned", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{MaxVersion: dlpack.Version{Major: 1}}))
	}},
	{name: "NoSync", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{NoSync: true}))
	}},
	{name: "OnQueue", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{OnQueue: s.probe}))
	}},
	{name: "own device", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		d := testenv.Must(a.DLDevice())(s.t)
		return a, s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{Device: &d, Copy: usmarray.CopyNever}))
	}},
	{name: "XPU", kind: syclobj.USMDevice, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.own(usmarray.FromXPU(s.rt, testenv.Must(a.DLPackWith(usmarray.ExportOptions{XPU: true}))(s.t)))
	}},
	{name: "read-only tensor", readOnly: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(a.AsReadOnly().DLPack())
	}},
	{name: "tensor of a view", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		x = s.inMiddle(a, 1)
		return x, s.fromDLPack(x.DLPack())
	}},
	{name: "tensor of a strided view", gaps: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		x = s.inMiddle(a, 2)
		return x, s.fromDLPack(x.DLPackWith(usmarray.ExportOptions{Legacy: true}))
	}},
	{name: "view of a tensor", gaps: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return s.inMiddle(a, 2), s.inMiddle(s.fromDLPack(a.DLPack()), 2)
	}},
	{name: "two tensors", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return s.fromDLPack(a.DLPack()), s.fromDLPack(a.DLPackWith(usmarray.ExportOptions{Legacy: true}))
	}},
	{name: "tensor of a tensor", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(s.fromDLPack(a.DLPack()).DLPack())
	}},
}

var byDictionary = []sharing{
	{name: "dictionary", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) { return a, s.fromDictionary(a, nil) }},
	{name: "filter string", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(a, func(d *usmarray.USMInterface) {
			d.SyclObj = usmarray.SyclObj{Filter: a.Place().FilterString()}
		})
	}},
	{name: "context", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(a, func(d *usmarray.USMInterface) { d.SyclObj = usmarray.SyclObj{Context: s.q.Context()} })
	}},
	{name: "other queue", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(a, func(d *usmarray.USMInterface) { d.SyclObj = usmarray.SyclObj{Queue: s.probe} })
	}},
	{name: "unknown allocation", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(a, func(d *usmarray.USMInterface) { d.Allocation = usmarray.Extent{} })
	}},
	{name: "read-only dictionary", readOnly: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(a, func(d *usmarray.USMInterface) { d.ReadOnly = true })
	}},
	{name: "two imports", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		d := testenv.Must(a.USMInterface())(s.t)
		return s.own(usmarray.FromUSMInterface(s.rt, &d, nil)), s.own(usmarray.FromUSMInterface(s.rt, &d, nil))
	}},
	{name: "dictionary of a view", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		x = s.inMiddle(a, 1)
		return x, s.fromDictionary(x, func(d *usmarray.USMInterface) { d.Allocation = usmarray.Extent{} })
	}},
	{name: "dictionary of a strided view", gaps: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		x = s.inMiddle(a, 2)
		return x, s.fromDictionary(x, nil)
	}},
	{name: "view of an import", gaps: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return s.inMiddle(a, 2), s.inMiddle(s.fromDictionary(a, nil), 2)
	}},
	{name: "import of an import", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDictionary(s.fromDictionary(a, nil), nil)
	}},
	{name: "tensor of an import", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		return a, s.fromDLPack(s.fromDictionary(a, nil).DLPack())
	}},
	{name: "dictionary of a tensor", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		d, owner, err := usmarray.DLPackToUSMInterface(s.rt, testenv.Must(a.DLPack())(s.t))
		return s.own(owner, err), s.own(usmarray.FromUSMInterface(s.rt, &d, nil))
	}},
	{name: "tensor of a dictionary", make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) {
		d := testenv.Must(a.USMInterface())(s.t)
		return a, s.fromDLPack(usmarray.USMInterfaceToDLPack(s.rt, &d, nil, usmarray.ExportOptions{}))
	}},
}

// An access reads or writes the elements of an array. A read returns them. A write adds the constant added
// to the kernel's values and returns nil.
type access struct {
	name  string
	host  bool // needs memory that the host can read
	dense bool // needs elements without gaps
	write bool
	do    func(s *scene, y *usmarray.Array) []int32
}

func (s *scene) elements(a *usmarray.Array) []int32 {
	s.t.Helper()
	return testenv.Must(usmarray.ToSlice[int32](a))(s.t)
}

// elementsOf is elements of an array that is released at the end of the round.
func (s *scene) elementsOf(a *usmarray.Array, err error) []int32 {
	s.t.Helper()
	return s.elements(s.own(a, err))
}

var accesses = []access{
	{name: "ToSlice", do: (*scene).elements},
	{name: "Slice", host: true, dense: true, do: func(s *scene, y *usmarray.Array) []int32 {
		return slices.Clone(testenv.Must(usmarray.Slice[int32](y))(s.t))
	}},
	{name: "ReadView", host: true, dense: true, do: func(s *scene, y *usmarray.Array) (data []int32) {
		require.NoError(s.t, usmarray.ReadView(y, func(view []int32) error { data = slices.Clone(view); return nil }))
		return data
	}},
	{name: "At", do: func(s *scene, y *usmarray.Array) (data []int32) {
		for i := range y.Size() { // the first is decisive: later calls give the kernel time
			data = append(data, testenv.Must(y.At(i))(s.t).(int32))
		}
		return data
	}},
	{name: "String", do: func(s *scene, y *usmarray.Array) []int32 { return s.printed(y.String(), nil) }},
	{name: "Format", do: func(s *scene, y *usmarray.Array) []int32 { return s.printed(y.Format(usmarray.PrintOptions{})) }},
	{name: "Copy to host", do: func(s *scene, y *usmarray.Array) []int32 { return s.elementsOf(y.Copy(s.host)) }},
	{name: "Copy to device", do: func(s *scene, y *usmarray.Array) []int32 { return s.elementsOf(y.Copy(s.device)) }},
	{name: "ToDevice", do: func(s *scene, y *usmarray.Array) []int32 { return s.elementsOf(y.ToDevice(s.shared)) }},
	{name: "AsType", do: func(s *scene, y *usmarray.Array) []int32 {
		return s.elementsOf(s.own(y.AsType(s.host, usmarray.Int64)).AsType(s.host, usmarray.Int32))
	}},
	{name: "ConvertFrom", do: func(s *scene, y *usmarray.Array) []int32 {
		wide := s.own(usmarray.Zeros(s.shared, usmarray.Int64, y.Shape()))
		require.NoError(s.t, wide.ConvertFrom(y))
		return s.elementsOf(wide.AsType(s.host, usmarray.Int32))
	}},
	{name: "CopyFrom on host", do: func(s *scene, y *usmarray.Array) []int32 {
		z := s.own(usmarray.Zeros(s.host, usmarray.Int32, y.Shape()))
		require.NoError(s.t, z.CopyFrom(y))
		return s.elements(z)
	}},
	{name: "CopyFrom on device", do: func(s *scene, y *usmarray.Array) []int32 {
		z := s.own(usmarray.New(s.device, usmarray.Int32, y.Shape()))
		require.NoError(s.t, z.CopyFrom(y))
		return s.elements(z)
	}},
	{name: "Buffer.Bytes", host: true, dense: true, do: func(s *scene, y *usmarray.Array) []int32 {
		bytes := testenv.Must(y.Buffer().Bytes())(s.t)
		return slices.Clone(unsafe.Slice((*int32)(unsafe.Pointer(&bytes[4*offset(y)])), y.Size()))
	}},
	{name: "CopyOut", dense: true, do: func(s *scene, y *usmarray.Array) []int32 {
		data := make([]int32, y.Size())
		require.NoError(s.t, memmgr.CopyOut(y.Buffer(), offset(y), data))
		return data
	}},
	{name: "CopyBuffer", dense: true, do: func(s *scene, y *usmarray.Array) []int32 {
		z := s.own(usmarray.Zeros(s.host, usmarray.Int32, y.Shape()))
		require.NoError(s.t, memmgr.CopyBuffer(z.Buffer(), 0, y.Buffer(), uint64(4*offset(y)), uint64(y.NBytes())))
		return s.elements(z)
	}},
	{name: "Wait", do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, y.Wait())
		return s.raw(y)
	}},
	{name: "Synchronize", do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, y.Synchronize(context.Background()))
		return s.raw(y)
	}},
	{name: "PendingEvent", do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, y.PendingEvent().Wait(context.Background()))
		return s.raw(y)
	}},
	{name: "USMInterface", do: func(s *scene, y *usmarray.Array) []int32 {
		d := testenv.Must(y.USMInterface())(s.t)
		require.Equal(s.t, uintptr(y.Pointer()), d.Data)
		return s.raw(y)
	}},
	{name: "USMInterface of a tensor", do: func(s *scene, y *usmarray.Array) []int32 {
		_, owner, err := usmarray.DLPackToUSMInterface(s.rt, testenv.Must(y.DLPackWith(usmarray.ExportOptions{NoSync: true}))(s.t))
		s.own(owner, err)
		return s.raw(y)
	}},
	{name: "DLPack", do: func(s *scene, y *usmarray.Array) []int32 {
		tensor := testenv.Must(y.DLPack())(s.t)
		defer tensor.Release()
		return s.rawAt(tensor.Data(), y)
	}},
	{name: "DLPack to CPU", dense: true, do: func(s *scene, y *usmarray.Array) []int32 {
		cpu := dlpack.CPU
		tensor := testenv.Must(y.DLPackWith(usmarray.ExportOptions{Device: &cpu}))(s.t)
		defer tensor.Release()
		return slices.Clone(unsafe.Slice((*int32)(tensor.Data()), y.Size()))
	}},
	{name: "DLPack on a queue", do: func(s *scene, y *usmarray.Array) []int32 {
		tensor := testenv.Must(y.DLPackWith(usmarray.ExportOptions{OnQueue: s.probe}))(s.t)
		defer tensor.Release()
		stride := y.Strides()[0]
		n := (y.Size()-1)*stride + 1
		span := s.own(usmarray.New(s.shared, usmarray.Int32, []int{n}))
		work := testenv.Must(s.probe.Memcpy(span.Pointer(), tensor.Data(), uintptr(4*n)))(s.t)
		require.NoError(s.t, work.Wait(context.Background()))
		return s.elementsOf(span.Index(usmarray.IndexFrom(0).By(stride)))
	}},
	{name: "import", do: func(s *scene, y *usmarray.Array) []int32 {
		return s.elementsOf(usmarray.FromDLPack(s.rt, testenv.Must(y.DLPackWith(usmarray.ExportOptions{NoSync: true}))(s.t)))
	}},
	{name: "kernel reads", do: func(s *scene, y *usmarray.Array) []int32 {
		z := s.own(usmarray.New(s.shared, usmarray.Int32, y.Shape()))
		s.launchOn(s.probe, s.gather, y, kernel.ReadWrite(z))
		return s.elements(z)
	}},
	{name: "kernel writes", write: true, do: func(s *scene, y *usmarray.Array) []int32 {
		s.launchOn(s.probe, s.add, y, kernel.Scalar(int32(added)))
		return nil
	}},
	{name: "Fill", write: true, do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, y.Fill(s.value+added))
		return nil
	}},
	{name: "SetAt", write: true, do: func(s *scene, y *usmarray.Array) []int32 {
		for i := range y.Size() {
			require.NoError(s.t, y.SetAt(s.value+added, i))
		}
		return nil
	}},
	{name: "CopyFrom", write: true, do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, y.CopyFrom(s.own(usmarray.Full(s.host, usmarray.Int32, y.Shape(), s.value+added))))
		return nil
	}},
	{name: "CopyFromSlice", write: true, do: func(s *scene, y *usmarray.Array) []int32 {
		require.NoError(s.t, usmarray.CopyFromSlice(y, slices.Repeat([]int32{s.value + added}, y.Size())))
		return nil
	}},
}

// A combination is a way to share memory and an access to it.
type combination struct {
	array   func() *usmarray.Array // makes the memory of a round
	share   sharing
	reverse bool // the kernel runs on y, and the access is to x
	use     access
}

// directions are the names of combination.reverse.
var directions = map[bool]string{false: "launch on first", true: "launch on second"}

// round runs a round and reports whether the access was ordered after the kernel.
func (s *scene) round(c *combination, q *syclobj.Queue) bool {
	s.value += 7
	a := c.array()
	require.NoError(s.t, a.Wait())
	x, y := c.share.make(s, a)
	if c.reverse {
		x, y = y, x
	}
	work := s.launchSlow(q, x)
	got := c.use.do(s, y)
	want := s.value
	// Complete all work, so that rounds are independent.
	require.NoError(s.t, work.Wait(context.Background()))
	require.NoError(s.t, x.Wait())
	require.NoError(s.t, y.Wait())
	if c.use.write {
		want += added
		got = s.raw(y)
	}
	right := allAre(got, y.Size(), want)
	s.release()
	return right
}

// release releases the arrays of the round and closes its events.
func (s *scene) release() {
	for _, a := range s.owned {
		a.Release()
	}
	for _, e := range s.events {
		require.NoError(s.t, e.Close())
	}
	s.owned, s.events = s.owned[:0], s.events[:0]
}

// run runs a round of a combination on each queue as a subtest.
func (s *scene) run(t *testing.T, name string, c combination) {
	t.Run(name, func(t *testing.T) {
		s.t = t
		wrong := 0
		for _, q := range s.queues {
			if !s.round(&c, q.Queue) {
				wrong++
			}
		}
		require.Zerof(t, wrong, "wrong on %d of %d queues", wrong, len(s.queues))
	})
}

// allocate returns a function that makes the array of a round.
func (s *scene) allocate(r memmgr.Resource) func() *usmarray.Array {
	return func() *usmarray.Array { return s.own(usmarray.Full(r, usmarray.Int32, []int{orderElements}, -1)) }
}

// matrix runs accesses for a way of sharing, with each kind of USM and in both directions.
func (s *scene) matrix(t *testing.T, share sharing, accept func(*access) bool) {
	for _, kind := range orderKinds {
		if share.kind != 0 && share.kind != kind {
			continue
		}
		array := s.allocate(resource(t, s.q, kind))
		for _, reverse := range []bool{false, true} {
			if (share.readOnly || share.one) && reverse {
				continue
			}
			for _, use := range accesses {
				if use.host && kind == syclobj.USMDevice || use.dense && share.gaps || use.write && share.readOnly || !accept(&use) {
					continue
				}
				s.run(t, fmt.Sprintf("%s/%v/%s/%s", share.name, kind, directions[reverse], use.name), combination{array, share, reverse, use})
			}
		}
	}
}

func all(*access) bool { return true }

// few accepts one access for each mechanism.
func few(a *access) bool {
	return slices.Contains([]string{"ToSlice", "At", "Copy to device", "USMInterface", "kernel reads", "Fill"}, a.name)
}

// testSharing runs all accesses for the first way of sharing, and few of them for the other ways.
func testSharing(t *testing.T, list []sharing) {
	s := newScene(t)
	s.matrix(t, list[0], all)
	for _, share := range list[1:] {
		s.matrix(t, share, few)
	}
}

// TestOrderOfOneArray checks the accesses themselves: launch and access use one array.
func TestOrderOfOneArray(t *testing.T) {
	s := newScene(t)
	share := sharing{name: "Retain", one: true, make: func(s *scene, a *usmarray.Array) (x, y *usmarray.Array) { return a, s.own(a.Retain(), nil) }}
	s.matrix(t, share, func(use *access) bool { return use.name != "import" })
}

// TestOrderOfOwnTensor checks that an array and the import of its own DLPack tensor wait for each other's
// kernels.
func TestOrderOfOwnTensor(t *testing.T) { testSharing(t, byDLPack) }

// TestOrderOfOwnDictionary checks the same for the dictionary.
func TestOrderOfOwnDictionary(t *testing.T) { testSharing(t, byDictionary) }

type namedMemory struct {
	name string
	kind syclobj.USMKind
	memmgr.Resource
}

// everyMemory returns resources of each kind of USM.
func (s *scene) everyMemory(t *testing.T) (all []namedMemory) {
	for _, kind := range orderKinds {
		pool := memmgr.NewPool(testsycl.USM(t, s.q, kind))
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		all = append(all,
			namedMemory{"default pool", kind, resource(t, s.q, kind)},
			namedMemory{"pool", kind, pool},
			namedMemory{"no pool", kind, testsycl.USM(t, s.q, kind)},
			namedMemory{"no pool, in-order queue", kind, testsycl.USM(t, s.queues[1].Queue, kind)},
			namedMemory{"no pool, out-of-order queue", kind, testsycl.USM(t, s.queues[2].Queue, kind)})
	}
	return all
}

// TestOrderInAllMemory checks both protocols with memory of several resources.
func TestOrderInAllMemory(t *testing.T) {
	s := newScene(t)
	for _, m := range s.everyMemory(t) {
		for _, share := range []sharing{byDLPack[0], byDictionary[0]} {
			for _, reverse := range []bool{false, true} {
				s.run(t, fmt.Sprintf("%s/%v/%s/%s", m.name, m.kind, share.name, directions[reverse]), combination{s.allocate(m), share, reverse, accesses[0]})
			}
		}
	}
}

// foreignMemory returns an array of memory that was allocated without package memmgr, and frees the memory
// after the array.
func (s *scene) foreignMemory(kind syclobj.USMKind) *usmarray.Array {
	const size = 4 * orderElements
	p := testenv.Must(s.q.Alloc(kind, size, 0))(s.t)
	place := testenv.Must(s.q.Place(kind))(s.t)
	defer place.Release()
	layout := testenv.Must(usmarray.NewLayout([]int{orderElements}, nil, 0))(s.t)
	buf := testenv.Must(memmgr.FromForeign(p, size, memmgr.ForeignOptions{Place: place, Release: func() { _ = syclobj.Free(p) }}))(s.t)
	a := s.own(usmarray.FromBuffer(buf, usmarray.Int32, layout))
	require.NoError(s.t, a.Fill(-1))
	return a
}

// TestOrderOfForeignMemory checks the same for memory of another library. Only its record in this library
// shows that two arrays are one memory.
func TestOrderOfForeignMemory(t *testing.T) {
	s := newScene(t)
	for _, share := range slices.Concat(byDLPack, byDictionary) {
		if !slices.Contains([]string{"DLPack", "two tensors", "dictionary", "two imports", "dictionary of a tensor", "tensor of a dictionary"}, share.name) {
			continue
		}
		for _, kind := range orderKinds {
			array := func() *usmarray.Array { return s.foreignMemory(kind) }
			for _, reverse := range []bool{false, true} {
				s.run(t, fmt.Sprintf("%s/%v/%s", share.name, kind, directions[reverse]), combination{array, share, reverse, accesses[0]})
			}
		}
	}
}

// TestOneRecord checks that the array and the imports of its own tensor and dictionary are one memory
// with one record, and that nothing is left after their release in either order.
func TestOneRecord(t *testing.T) {
	s := newScene(t)
	for _, m := range s.everyMemory(t) {
		for _, share := range slices.Concat(byDLPack, byDictionary) {
			if share.kind != 0 && share.kind != m.kind {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v/%s", m.name, m.kind, share.name), func(t *testing.T) {
				s.t = t
				different := 0
				for _, backwards := range []bool{false, true} {
					memmgr.Flush()
					buffers, bytes := memmgr.LiveCount()
					a := s.allocate(m)()
					x, y := share.make(s, a)
					require.Same(t, a.Place(), y.Place())
					if cells.Of(x.Buffer()).Record() != cells.Of(y.Buffer()).Record() || cells.Of(a.Buffer()).Record() != cells.Of(y.Buffer()).Record() {
						different++
					}
					if backwards {
						slices.Reverse(s.owned)
					}
					s.release()
					eventuallyLive(t, buffers, bytes)
				}
				require.Zerof(t, different, "different records in %d of 2", different)
			})
		}
	}
}

// eventuallyLive waits until no more than so many buffers and bytes are live.
func eventuallyLive(t *testing.T, buffers int, bytes uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, size := memmgr.LiveCount()
		return n <= buffers && size <= bytes
	}, time.Minute, time.Millisecond, "memory is left")
}

// TestImportOutlivesItsArray checks that an import of the array's own tensor keeps the memory, and that the
// memory is not given out again before work on the import is complete.
func TestImportOutlivesItsArray(t *testing.T) {
	s := newScene(t)
	for _, kind := range orderKinds {
		r := resource(t, s.q, kind)
		for _, q := range s.queues {
			t.Run(fmt.Sprintf("%v/%s", kind, q.name), func(t *testing.T) {
				s.t = t
				wrong := 0
				for range orderRounds {
					s.value += 7
					a := s.allocate(r)()
					b := s.fromDLPack(a.DLPack())
					s.launchSlow(q.Queue, b)
					s.release()
					next := s.own(usmarray.Full(r, usmarray.Int32, []int{orderElements}, s.value+added))
					require.NoError(t, q.Wait(context.Background()))
					if !allAre(s.elements(next), orderElements, s.value+added) {
						wrong++
					}
					s.release()
				}
				require.Zerof(t, wrong, "wrong %d of %d", wrong, orderRounds)
			})
		}
	}
}

// TestReleaseOfOwnDictionary checks that the function given to FromUSMInterface is called exactly once, at
// the latest after the last array is released, and that it may release the owner of the same memory.
func TestReleaseOfOwnDictionary(t *testing.T) {
	s := newScene(t)
	for _, m := range s.everyMemory(t) {
		for _, c := range []struct {
			name           string
			ownerFirst     bool // the array is released before the import
			keeps, pending bool // the function releases an array of the memory; a kernel is pending
			imports        int
		}{
			{name: "import first", imports: 1},
			{name: "array first", ownerFirst: true, keeps: true, imports: 1},
			{name: "import first, it keeps the array", keeps: true, imports: 1},
			{name: "two imports", ownerFirst: true, keeps: true, imports: 2},
			{name: "pending", pending: true, keeps: true, imports: 2},
			{name: "pending, array first", pending: true, ownerFirst: true, keeps: true, imports: 2},
		} {
			t.Run(fmt.Sprintf("%s/%v/%s", m.name, m.kind, c.name), func(t *testing.T) {
				s.t = t
				memmgr.Flush()
				buffers, bytes := memmgr.LiveCount()
				a := testenv.Must(usmarray.Full(m, usmarray.Int32, []int{orderElements}, 5))(t)
				d := testenv.Must(a.USMInterface())(t)
				calls := make([]atomic.Int32, c.imports)
				var work *syclobj.Event
				var early atomic.Int32 // releases before the end of the work
				var imports []*usmarray.Array
				for i := range c.imports {
					owner := a
					if c.keeps {
						owner = a.Retain()
					}
					release := func() {
						calls[i].Add(1)
						if c.pending && !work.Done() {
							early.Add(1)
						}
						if c.keeps {
							owner.Release()
						}
					}
					imports = append(imports, testenv.Must(usmarray.FromUSMInterface(s.rt, &d, release))(t))
				}
				if c.pending {
					s.value = 5
					work = s.launchSlow(s.queues[2].Queue, imports[0])
				}
				if c.ownerFirst {
					a.Release()
				}
				for i, b := range imports {
					last := b.Retain()
					b.Release()
					if !c.pending { // the read waits for the kernel
						require.Equal(t, int32(5), testenv.Must(usmarray.ToSlice[int32](last))(t)[0], "import %d", i)
					}
					last.Release()
				}
				a.Release() // does nothing the second time
				require.Eventually(t, func() bool {
					for i := range calls {
						if calls[i].Load() == 0 {
							return false
						}
					}
					return true
				}, time.Minute, time.Millisecond, "not called")
				s.release() // a closed event is always done
				eventuallyLive(t, buffers, bytes)
				memmgr.Flush()
				require.Zero(t, early.Load(), "a release before the end of the work")
				for i := range calls {
					require.EqualValues(t, 1, calls[i].Load(), "import %d", i)
				}
			})
		}
	}
}

// TestFailedImportOfOwnDictionary checks that an import that fails calls no release function and holds no
// memory.
func TestFailedImportOfOwnDictionary(t *testing.T) {
	s := newScene(t)
	buffers, bytes := memmgr.LiveCount()
	a := s.own(usmarray.Zeros(s.shared, usmarray.Int32, []int{orderElements}))
	d := testenv.Must(a.USMInterface())(t)
	d.Shape = []int{orderElements + 1<<20} // beyond the allocation, which the dictionary declares
	require.Error(t, testenv.ErrorOf(usmarray.FromUSMInterface(s.rt, &d, func() { t.Error("called") })))
	require.Equal(t, 1, a.Buffer().Count())
	s.release()
	eventuallyLive(t, buffers, bytes)
}

// TestDictionaryOfReleasedMemory checks that the import of a dictionary whose memory was released takes no
// reference from the memory's next user.
func TestDictionaryOfReleasedMemory(t *testing.T) {
	s := newScene(t)
	for _, kind := range orderKinds {
		memmgr.Flush()
		buffers, bytes := memmgr.LiveCount()
		r := resource(t, s.q, kind)
		a := testenv.Must(usmarray.Zeros(r, usmarray.Int32, []int{orderElements}))(t)
		d := testenv.Must(a.USMInterface())(t)
		a.Release()
		memmgr.Flush()
		b, err := usmarray.FromUSMInterface(s.rt, &d, nil) // it may be refused
		next, nextErr := usmarray.Full(r, usmarray.Int32, []int{orderElements}, 9)
		require.NoError(t, nextErr)
		if err == nil {
			b.Release()
		}
		memmgr.Flush()
		require.Equal(t, 1, next.Buffer().Count())
		require.Equal(t, int32(9), testenv.Must(next.At(0))(t))
		next.Release()
		eventuallyLive(t, buffers, bytes)
	}
}

// TestPanicOfRelease checks that a release function that panics leaks nothing.
func TestPanicOfRelease(t *testing.T) {
	s := newScene(t)
	memmgr.Flush()
	buffers, bytes := memmgr.LiveCount()
	a := s.own(usmarray.Zeros(s.shared, usmarray.Int32, []int{orderElements}))
	d := testenv.Must(a.USMInterface())(t)
	b := testenv.Must(usmarray.FromUSMInterface(s.rt, &d, func() { panic("the user's") }))(t)
	require.PanicsWithValue(t, "the user's", b.Release)
	s.release()
	eventuallyLive(t, buffers, bytes)
}

// TestExportAfterUnreportedWork checks that a dictionary and a tensor without a consumer's queue are given
// out after the work that another library submitted to a queue on which it was shown the memory, also if that
// is the queue of last use.
func TestExportAfterUnreportedWork(t *testing.T) {
	s := newScene(t)
	exports := map[string]func(a *usmarray.Array){
		"dictionary": func(a *usmarray.Array) { testenv.Must(a.USMInterface())(s.t) },
		"tensor":     func(a *usmarray.Array) { testenv.Must(a.DLPack())(s.t).Release() },
	}
	for _, q := range s.queues[1:] {
		for _, lastUse := range []bool{false, true} {
			for name, export := range exports {
				t.Run(fmt.Sprintf("%s/%s/last use %t", q.name, name, lastUse), func(t *testing.T) {
					s.t = t
					defer s.release()
					for range orderRounds {
						s.value++
						x, other := s.allocate(s.shared)(), s.allocate(s.shared)()
						if lastUse {
							require.NoError(t, s.launchOn(q.Queue, s.add, x, kernel.Scalar(int32(1))).Wait(context.Background()))
						}
						require.NoError(t, x.Buffer().ExportOn(q.Queue))
						slow := s.launchSlow(q.Queue, other)
						s.events = append(s.events, testenv.Must(q.Memset(x.Pointer(), byte(s.value), uintptr(x.NBytes()), slow))(t))
						export(x)
						require.True(t, allAre(s.raw(x), orderElements, s.value*0x01010101))
					}
				})
			}
		}
	}
}
