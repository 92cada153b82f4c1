package memmgr

// onFailure asks a function what to do when its upstream fails.
type onFailure struct {
	upstream
	ask func(request Request, err error) (retry bool)
}

// NewOnFailure returns a resource that calls f, on the goroutine that asked, for
// each failure of the upstream: when f returns true, the request is tried again. f
// may release buffers; it must not allocate from this resource, and must return
// false at some time.
func NewOnFailure(from Resource, f func(request Request, err error) (retry bool)) Resource {
	return &onFailure{upstream: over(from), ask: f}
}

// Allocate implements [Resource].
func (f *onFailure) Allocate(r Request) (Block, error) {
	for {
		b, err := f.from.Allocate(r)
		if err == nil || !f.ask(r, err) {
			return b, err
		}
	}
}

// Free implements [Resource].
func (f *onFailure) Free(b Block) { f.from.Free(b) }
