package memmgr

import "github.com/usmbridge/usmbridge/syclobj"

// OnFailure asks a function what to do when its upstream fails: when it returns
// true, the request is tried again.
type OnFailure struct {
	upstream Resource
	ask      func(request Request, err error) (retry bool)
}

// NewOnFailure calls f, on the goroutine that asked, for each failure of the
// upstream. f may release buffers; it must not allocate from this resource, and
// must return false at some time.
func NewOnFailure(upstream Resource, f func(request Request, err error) (retry bool)) *OnFailure {
	return &OnFailure{upstream: upstream, ask: f}
}

// Place implements [Resource].
func (f *OnFailure) Place() *syclobj.Place { return f.upstream.Place() }

// Upstream returns the wrapped resource.
func (f *OnFailure) Upstream() Resource { return f.upstream }

// Allocate implements [Resource].
func (f *OnFailure) Allocate(r Request) (Block, error) {
	for {
		b, err := f.upstream.Allocate(r)
		if err == nil || !f.ask(r, err) {
			return b, err
		}
	}
}

// Free implements [Resource].
func (f *OnFailure) Free(b Block) { f.upstream.Free(b) }
