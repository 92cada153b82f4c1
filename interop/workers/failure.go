package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
)

// failure is the form in which a worker sends an error to the Pool.
type failure struct {
	Text       string      `json:"text"`              // the text of the whole error
	Outcome    string      `json:"outcome,omitempty"` // of an interrupted call
	Hint       string      `json:"hint,omitempty"`    // of the outcome
	Ended      bool        `json:"ended,omitempty"`   // the reason is the end of the call's context, without an outcome
	Exception  *exception  `json:"exception,omitempty"`
	Class      string      `json:"class,omitempty"` // for exceptions: classes that errors.Is finds
	Panic      *panicked   `json:"panic,omitempty"`
	Conversion *conversion `json:"conversion,omitempty"`
	TooLong    bool        `json:"too_long,omitempty"`
	NoMemory   bool        `json:"no_memory,omitempty"`
}

type exception struct {
	Type      string   `json:"type"`
	Message   string   `json:"message"`
	Traceback string   `json:"traceback"`
	Classes   []string `json:"classes"`
	Only      bool     `json:"only,omitempty"` // the error is nothing else
}

type panicked struct {
	Value string `json:"value"`
	Stack string `json:"stack"`
}

type conversion struct {
	From, To, Reason string
	Cycle, TooDeep   bool
}

// Outcomes.
const (
	outcomeNotBegun    = "not begun"
	outcomeInterrupted = "interrupted"
	outcomeNotStopped  = "not stopped"
)

// maxText bounds each text of a failure.
const maxText = 64 << 10

func cut(s string) string { return cutTo(s, maxText) }

func cutTo(s string, most int) string {
	if len(s) > most {
		return s[:most/2] + "\n… (cut) …\n" + s[len(s)-most/2:]
	}
	return s
}

// Bounds of a shortened failure. JSON takes up to six bytes for one byte of a text; slack is larger
// than all of them together.
const (
	shortText   = 4 << 10
	mostClasses = 64
)

// shorten bounds the texts and names of a failure that is too long as JSON. Of the classes it keeps
// the last ones, which are common bases.
func (f *failure) shorten() {
	short := func(texts ...*string) {
		for _, s := range texts {
			*s = cutTo(*s, shortText)
		}
	}
	short(&f.Text, &f.Class, &f.Hint)
	if x := f.Exception; x != nil {
		short(&x.Type, &x.Message, &x.Traceback)
		x.Classes = x.Classes[max(0, len(x.Classes)-mostClasses):]
		for i := range x.Classes {
			x.Classes[i] = cutTo(x.Classes[i], shortText/mostClasses)
		}
	}
	if p := f.Panic; p != nil {
		short(&p.Value, &p.Stack)
	}
	if c := f.Conversion; c != nil {
		short(&c.From, &c.To, &c.Reason)
	}
}

// ended is an error whose reason is the end of the context of the call in the worker.
type ended struct{ err error }

func (e *ended) Error() string { return e.err.Error() }
func (e *ended) Unwrap() error { return e.err }

// ofContext marks an error whose reason is the end of ctx, the context of the call in this process. The caller has another
// context, whose error replaces that of ctx.
func ofContext(ctx context.Context, err error) error {
	if endedBy(ctx, err) {
		return &ended{err}
	}
	return err
}

func endedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// afterCall returns the error of a step after the function has returned. If the end of the context is the reason,
// the outcome is that of a function that ran to completion.
func afterCall(ctx context.Context, err error) error {
	if endedBy(ctx, err) {
		return fmt.Errorf("%w: %w", python.ErrNotStopped, err)
	}
	return err
}

// describe converts an error of package executor, or of the conversion of a result.
func describe(err error) *failure {
	var (
		e *executor.Error
		c *ended
	)
	marked := errors.As(err, &c)
	if errors.As(err, &e) && e.Err != nil && e.Kind == nil {
		err = e.Err
	}
	f := &failure{Text: cut(err.Error()), Ended: marked}
	switch {
	case errors.Is(err, python.ErrNotBegun):
		f.Outcome = outcomeNotBegun
	case errors.Is(err, python.ErrInterrupted):
		f.Outcome = outcomeInterrupted
	case errors.Is(err, python.ErrNotStopped):
		f.Outcome = outcomeNotStopped
	}
	var (
		x *python.Error
		p *python.PanicError
		v *python.ConversionError
	)
	var class python.Exception
	if errors.As(err, &class) {
		f.Class = string(class)
	}
	if errors.As(err, &x) {
		f.Exception = &exception{Type: x.Type, Message: cut(x.Message), Traceback: cut(x.Traceback), Classes: x.Classes,
			Only: err == error(x)} //nolint:errorlint // err itself, not one that it wraps
	}
	if errors.As(err, &p) {
		f.Panic = &panicked{cut(fmt.Sprint(p.Value)), cut(p.Stack)}
	}
	if errors.As(err, &v) {
		f.Conversion = &conversion{From: v.From, To: v.To, Cycle: errors.Is(v, python.ErrCycle), TooDeep: errors.Is(v, python.ErrTooDeep)}
		if v.Err != nil {
			f.Conversion.Reason = cut(v.Err.Error())
		}
	}
	if o := (*python.OpError)(nil); f.Outcome != "" && errors.As(err, &o) {
		f.Hint = cut(o.Hint)
	}
	f.TooLong, f.NoMemory = errors.Is(err, ErrTooLong), errors.Is(err, memmgr.ErrOutOfMemory)
	return f
}

// remote is an error of another process: its text, and the errors that errors.Is and errors.As find.
type remote struct {
	text string
	in   []error
}

func (e *remote) Error() string   { return e.text }
func (e *remote) Unwrap() []error { return e.in }

// err returns the error that the failure describes. why is the cause of an outcome, or of the end of the context.
func (f *failure) err(why error) error {
	var in []error
	if x := f.Exception; x != nil {
		pe := &python.Error{Type: x.Type, Message: x.Message, Traceback: x.Traceback, Classes: x.Classes}
		if x.Only {
			return pe
		}
		in = append(in, pe)
	}
	if p := f.Panic; p != nil {
		in = append(in, &python.PanicError{Value: p.Value, Stack: p.Stack})
	}
	if c := f.Conversion; c != nil {
		in = append(in, c.err())
	}
	if f.Class != "" {
		in = append(in, python.Exception(f.Class))
	}
	if f.TooLong {
		in = append(in, ErrTooLong)
	}
	if f.NoMemory {
		in = append(in, memmgr.ErrOutOfMemory)
	}
	outcome := map[string]error{outcomeNotBegun: python.ErrNotBegun, outcomeInterrupted: python.ErrInterrupted, outcomeNotStopped: python.ErrNotStopped}[f.Outcome]
	if outcome == nil && f.Ended {
		return &remote{fmt.Sprintf("%s (its context has ended: %v)", f.Text, why), append(in, why)}
	}
	if outcome == nil {
		return &remote{f.Text, in}
	}
	if len(in) > 0 {
		why = fmt.Errorf("%w: %w", why, errors.Join(in...))
	}
	return &python.OpError{Op: "CallContext", Path: "the function", Kind: outcome, Err: why, Hint: f.Hint}
}

func (c *conversion) err() error {
	e := &python.ConversionError{From: c.From, To: c.To}
	switch {
	case c.Cycle:
		e.Err = &remote{c.Reason, []error{python.ErrCycle}}
	case c.TooDeep:
		e.Err = &remote{c.Reason, []error{python.ErrTooDeep}}
	case c.Reason != "":
		e.Err = errors.New(c.Reason)
	}
	return e
}
