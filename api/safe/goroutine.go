package safe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Panic is a recovered panic as an error. Panics are counted by the log records that carry one under any key.
type Panic struct {
	Name  string // what was running; one of a few constants, so that it can be a metric label
	Value any    // argument of panic
	Stack []byte // stack of the goroutine that panicked
}

// Error says what panicked and with which value, without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic in %s: %v", p.Name, p.Value) }

// Unwrap returns the value of the panic if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Go runs fn in a new goroutine. A panic ends only fn, and is logged at level Error with its stack. Goroutines that fn
// starts are not covered, nor are faults that cannot be recovered: an exhausted stack, concurrent map writes, a
// deadlock.
func Go(logger *slog.Logger, name string, fn func()) {
	go Run(logger, name, fn)
}

// Beside calls fn, and runs beside in a goroutine of its own at the same time. When fn has returned or panicked, Beside
// cancels the context of both, waits for beside, and returns. The end of beside does not end fn.
func Beside(ctx context.Context, logger *slog.Logger, name string, beside, fn func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() {
		cancel()
		<-ended
	}()
	Go(logger, name, func() {
		defer close(ended)
		beside(ctx)
	})
	fn(ctx)
}

// Run calls fn. A panic is logged as in Go.
func Run(logger *slog.Logger, name string, fn func()) {
	if err := Do(name, fn); err != nil {
		logger.Error("recovered from a panic", "err", err, "stack", string(err.(*Panic).Stack))
	}
}

// Do calls fn and returns a panic as a *Panic, which the caller logs or returns. Without a panic it returns nil.
func Do(name string, fn func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{Name: name, Value: v, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}
