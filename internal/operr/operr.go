// Package operr has the parts of the OpError types, which CONTRIBUTING.md describes. dlpack has its own, because it
// imports no other package.
package operr

import (
	"context"
	"errors"
	"fmt"
)

// Text returns "head: kind: problem", without those that are nil.
func Text(head string, kind, problem error) string {
	for _, reason := range Unwrap(kind, problem) {
		head += ": " + reason.Error()
	}
	return head
}

// Unwrap returns the kind and the problem, without nil.
func Unwrap(kind, problem error) (both []error) {
	for _, err := range []error{kind, problem} {
		if err != nil {
			both = append(both, err)
		}
	}
	return both
}

// Ended returns the reason why a context has ended: its error, and its cause if that is another error. It returns nil if
// the context has not ended.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}
