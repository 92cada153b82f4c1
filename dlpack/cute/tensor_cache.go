package cute

// TensorCache holds at most a fixed number of converted tensors by Key, so that
// a tensor that is passed again and again is converted once. It keeps the
// sources of what it holds alive. All methods may be called by many goroutines
// at a time.
type TensorCache struct {
	cache *Cache[*Tensor]
}

// NewTensorCache returns a cache of at most capacity tensors, at least 1.
func NewTensorCache(capacity int) *TensorCache {
	return &TensorCache{NewCache(capacity, func(_ Key, t *Tensor) { t.Release() })}
}

// Get returns the tensor under the key, if it is the one the view shows: the
// same address and extents, and the same strides where the extent is larger
// than 1. A key alone does not say that, since it leaves out the address and
// all that is dynamic. The result is a clone, which the caller releases.
func (c *TensorCache) Get(key Key, v View) (*Tensor, bool) {
	e := c.cache.find(&key)
	if e == nil || !e.value.shows(&v) {
		return nil, false
	}
	t, err := e.value.Clone() // fails if it was evicted and released just now
	return t, err == nil
}

// Put adds a clone of the tensor under its Key and returns that; the tensor
// stays the caller's. What was under the key is released. It fails with
// ErrReleased.
func (c *TensorCache) Put(t *Tensor) (Key, error) {
	clone, err := t.Clone()
	if err != nil {
		return Key{}, err
	}
	key := clone.spec.Key()
	c.cache.Put(key, clone)
	return key, nil
}

// Len returns the number of tensors held.
func (c *TensorCache) Len() int { return c.cache.Len() }

// Clear releases all tensors held.
func (c *TensorCache) Clear() { c.cache.Clear() }

// shows says whether the view is of the tensor's memory and layout. The spec of
// a cached tensor, a clone, is neither written nor reused.
func (t *Tensor) shows(v *View) bool {
	m := t.spec.modes()
	if uintptr(t.data) != uintptr(v.Data)+uintptr(v.ByteOffset) || len(v.Shape) != len(m.extent) || v.Strides != nil && len(v.Strides) != len(v.Shape) {
		return false
	}
	if v.Strides == nil {
		return sameInts(v.Shape, m.extent) && followsCOrder(m)
	}
	for i, e := range m.extent {
		if v.Shape[i] != e || e > 1 && v.Strides[i] != m.stride[i] {
			return false
		}
	}
	return true
}

func sameInts(a, b []int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// followsCOrder says whether the layout is that of C order, modes of size 1 aside.
func followsCOrder(m modes) bool {
	product := int64(1)
	for i := len(m.extent) - 1; i >= 0; i-- {
		if m.extent[i] > 1 && m.stride[i] != product {
			return false
		}
		product = times(product, m.extent[i])
	}
	return true
}
