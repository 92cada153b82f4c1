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

// CheckName returns an error that matches ErrName for what no tensor can be called:
// names are 1 to 128 bytes of printable UTF-8 without a slash and without spaces at
// their ends.
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
	return fmt.Errorf("%w: %.40q: %s", ErrName, name, bad)
}

func limitError(what string, asked, limit int64) error {
	return fmt.Errorf("%w: %s: %d, at most %d", ErrLimit, what, asked, limit)
}

// Store keeps tensors by name. It is safe for concurrent use.
type Store struct {
	memory memmgr.Resource
	max    int

	mu      sync.Mutex
	tensors map[string]*tensor
}

// NewStore makes a store whose tensors come from a resource, at most so many (0 for
// 65536).
func NewStore(memory memmgr.Resource, max int) *Store {
	if max <= 0 {
		max = 1 << 16
	}
	return &Store{memory: memory, max: max, tensors: map[string]*tensor{}}
}

// Put keeps an array under a name, in the array's own memory, of which the store holds a
// reference; the elements must not change while it does. What had the name is let go
// of. Errors: ErrName, ErrLimit, and those of usmarrow.TypeOf.
func (s *Store) Put(name string, a *usmarray.Array) error {
	if err := CheckName(name); err != nil {
		return &Error{Op: "Store.Put", Err: err}
	}
	t, err := fromArray(a)
	if err != nil {
		return &Error{Op: "Store.Put", Name: name, Err: err}
	}
	return s.commit(name, t)
}

// commit takes over a tensor's reference, on error too.
func (s *Store) commit(name string, t *tensor) error {
	s.mu.Lock()
	old, known := s.tensors[name]
	if !known && len(s.tensors) >= s.max {
		s.mu.Unlock()
		t.release()
		return &Error{Op: "commit", Name: name, Err: limitError("tensors in the store", int64(s.max)+1, int64(s.max))}
	}
	s.tensors[name] = t
	s.mu.Unlock()
	if known {
		old.release()
	}
	return nil
}

// Get is the array of a name: the store's own memory where the tensor was received in
// one piece, else a copy in memory of the store's resource. The caller releases it, and
// must not write to it. Errors: ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (*usmarray.Array, error) {
	t, err := s.tensor(name)
	if err != nil {
		return nil, &Error{Op: "Store.Get", Name: name, Err: err}
	}
	defer t.release()
	a, err := t.array(ctx, s.memory)
	if err != nil {
		return nil, &Error{Op: "Store.Get", Name: name, Err: err}
	}
	return a, nil
}

// tensor is a tensor with a reference.
func (s *Store) tensor(name string) (*tensor, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tensors[name]
	if !ok || !t.retain() {
		return nil, fmt.Errorf("%w; ListFlights names those that there are", ErrNotFound)
	}
	return t, nil
}

// Free lets go of a tensor; whoever reads it at the time keeps it to the end. Errors:
// ErrNotFound.
func (s *Store) Free(name string) error {
	s.mu.Lock()
	t, ok := s.tensors[name]
	delete(s.tensors, name)
	s.mu.Unlock()
	if !ok {
		return &Error{Op: "Store.Free", Name: name, Err: ErrNotFound}
	}
	t.release()
	return nil
}

// Names lists the tensors in order, those whose name begins with a prefix.
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

// Size returns how many tensors there are and their bytes.
func (s *Store) Size() (tensors int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tensors {
		bytes += t.bytes()
	}
	return len(s.tensors), bytes
}

// Clear lets go of all tensors.
func (s *Store) Clear() {
	s.mu.Lock()
	old := s.tensors
	s.tensors = map[string]*tensor{}
	s.mu.Unlock()
	for _, t := range old {
		t.release()
	}
}
