package flight

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// MaxName is the length of the longest name in bytes.
const MaxName = 128

// CheckName returns an error that matches ErrName for an invalid name. Names are 1 to 128 bytes of
// printable UTF-8 without a slash and without spaces at their ends.
func CheckName(name string) error {
	bad := ""
	switch {
	case name == "" || len(name) > MaxName:
		bad = fmt.Sprintf("%d bytes, not 1 to %d", len(name), MaxName)
	case !utf8.ValidString(name):
		bad = "not UTF-8"
	case strings.TrimSpace(name) != name:
		bad = "spaces at an end"
	case strings.ContainsRune(name, '/') || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		bad = "a slash or a character that does not print"
	default:
		return nil
	}
	return &Error{Op: "CheckName", Kind: ErrName, Err: fmt.Errorf("%.40q: %s", name, bad)}
}

func limitError(quantity string, requested, limit int64) error {
	return kindErr(ErrLimit, "%s: %d, at most %d", quantity, requested, limit)
}

// Store keeps the tensors of a server by name. It is safe for concurrent use.
type Store struct {
	memory memmgr.Resource
	max    int

	mu      sync.Mutex
	tensors map[string]*tensor
}

// newStore creates a store of at most max tensors (0 for 65536). Get allocates copies from memory.
func newStore(memory memmgr.Resource, max int) *Store {
	if max <= 0 {
		max = 1 << 16
	}
	return &Store{memory: memory, max: max, tensors: map[string]*tensor{}}
}

// Put stores an array under a name, without a copy, and releases the former tensor of the name. The store
// holds a reference of the array's memory; the elements must not change while the array is stored. Errors:
// ErrName, ErrLimit, and those of usmarrow.TypeOf.
func (s *Store) Put(name string, a *usmarray.Array) error {
	if err := CheckName(name); err != nil {
		return named("Store.Put", "", err)
	}
	t, err := fromArray(a)
	if err != nil {
		return named("Store.Put", name, err)
	}
	return s.commit(name, t)
}

// commit stores a tensor. It takes over the reference, also on error.
func (s *Store) commit(name string, t *tensor) error {
	s.mu.Lock()
	old, exists := s.tensors[name]
	if !exists && len(s.tensors) >= s.max {
		s.mu.Unlock()
		t.release()
		return named("Store.Put", name, limitError("tensors in the store", int64(s.max)+1, int64(s.max)))
	}
	s.tensors[name] = t
	s.mu.Unlock()
	if exists {
		old.release()
	}
	return nil
}

// Get returns the array of a name. It shares the store's memory if the tensor is contiguous; otherwise it
// is a copy in memory of the store's resource. The caller releases the array and must not write to it.
// Errors: ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (*usmarray.Array, error) {
	t, err := s.tensor(name)
	if err != nil {
		return nil, named("Store.Get", name, err)
	}
	defer t.release()
	a, err := t.array(ctx, s.memory)
	if err != nil {
		return nil, named("Store.Get", name, err)
	}
	return a, nil
}

// tensor returns a tensor with a reference.
func (s *Store) tensor(name string) (*tensor, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tensors[name]
	if !ok || !t.retain() {
		return nil, kindErr(ErrNotFound, "ListFlights names the tensors that exist")
	}
	return t, nil
}

// Free removes a tensor. Calls that are reading it finish. Errors: ErrName, ErrNotFound.
func (s *Store) Free(name string) error {
	if err := CheckName(name); err != nil {
		return named("Store.Free", "", err)
	}
	s.mu.Lock()
	t, ok := s.tensors[name]
	delete(s.tensors, name)
	s.mu.Unlock()
	if !ok {
		return named("Store.Free", name, kindErr(ErrNotFound, "ListFlights names the tensors that exist"))
	}
	t.release()
	return nil
}

// Names returns the names that begin with a prefix, sorted.
func (s *Store) Names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for n := range s.tensors {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names
}

// Size returns the number of tensors and their bytes.
func (s *Store) Size() (tensors int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tensors {
		bytes += t.bytes()
	}
	return len(s.tensors), bytes
}

// Clear removes all tensors.
func (s *Store) Clear() {
	s.mu.Lock()
	old := s.tensors
	s.tensors = map[string]*tensor{}
	s.mu.Unlock()
	for _, t := range old {
		t.release()
	}
}
