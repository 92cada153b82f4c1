package usmarray

import "context"

// Synchronize blocks until the work that this library submitted on the memory
// is complete, and everything submitted to the memory's own queue: what a
// consumer that waits (the xpu contract) calls before it reads. Work that
// others submitted to queues of theirs is theirs to wait for.
func (a *Array) Synchronize(ctx context.Context) error {
	const op = "Synchronize"
	a.hold(op)
	defer a.buf.Release()
	if err := a.buf.WaitContext(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	if a.place.IsHost() {
		return ctx.Err()
	}
	q, err := a.copyQueue(op)
	if err != nil {
		return err
	}
	if err := q.Wait(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}
