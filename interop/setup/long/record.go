//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A record is what one stage did, in one sitting or several.
type record struct {
	Commit     string    `json:"commit"`
	Date       time.Time `json:"date"` // of the last that is known
	Wanted     float64   `json:"wanted_seconds"`
	Seconds    float64   `json:"seconds"`
	Executions int64     `json:"executions"`
	Findings   []string  `json:"findings,omitempty"`
	Notes      []string  `json:"notes,omitempty"`
	Complete   bool      `json:"complete"`
}

// A book is the file with all records. Each change is written at once, so that whoever is
// killed has lost little.
type book struct {
	path string
	mu   sync.Mutex
	all  map[string]record
}

func openBook(path string) (*book, error) {
	b := &book{path: path, all: map[string]record{}}
	text, err := os.ReadFile(path) //nolint:gosec // In bin.
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &b.all); err != nil {
		return nil, fmt.Errorf("%s is no record of earlier runs: %w; move it away to begin anew", path, err)
	}
	return b, nil
}

func (b *book) get(name string) (record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.all[name]
	return r, ok
}

func (b *book) put(name string, r record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[name] = r
	text, err := json.MarshalIndent(b.all, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(b.path), "record-*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), b.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// left says for how long a stage has still to run, and from which record it goes on.
func (s *stage) left(r record, known bool, commit string, time float64, again bool) (seconds float64, from record) {
	fresh := record{Commit: commit, Wanted: time}
	same := r.Commit == commit
	switch {
	case !known, len(r.Findings) > 0 && !same, again && !same:
		return time, fresh
	case len(r.Findings) > 0:
		return 0, r
	case r.Complete && (!s.Timed || r.Seconds >= time-0.5):
		return 0, r
	case s.Timed && same:
		r.Wanted, r.Complete = time, false
		return time - r.Seconds, r
	}
	return time, fresh
}
