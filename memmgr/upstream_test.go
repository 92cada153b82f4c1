package memmgr_test

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
)

// upstream is a resource that calls functions of a test: ask before each allocation, which fails with its error,
// answered after it, and freeing before each free.
type upstream struct {
	memmgr.Resource
	ask      atomic.Pointer[func(memmgr.Request) error]
	answered func(error)
	freeing  func()
}

func (u *upstream) setAsk(ask func(memmgr.Request) error) { u.ask.Store(&ask) }

func (u *upstream) Upstream() memmgr.Resource { return u.Resource }

func (u *upstream) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if ask := u.ask.Load(); ask != nil {
		if err := (*ask)(r); err != nil {
			return memmgr.Block{}, err
		}
	}
	b, err := u.Resource.Allocate(r)
	if u.answered != nil {
		u.answered(err)
	}
	return b, err
}

func (u *upstream) Free(b memmgr.Block) {
	if u.freeing != nil {
		u.freeing()
	}
	u.Resource.Free(b)
}
