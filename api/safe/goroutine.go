package safe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Panic is a recovered panic as an error. A log record that carries one under any key is how panics are counted.
type Panic struct {
	Name  string // what was running: one of few fixed names, fit for a metric's label
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error says what panicked and with which value, without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic in %s: %v", p.Name, p.Value) }

// Unwrap returns the value of the panic when it was an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Go runs fn in a goroutine of its own. A panic ends fn and nothing else: it is logged at Error with its stack. It does
// not cover goroutines that fn starts, nor what no recover can stop: an exhausted stack, concurrent map writes, a
// deadlock.
func Go(logger *slog.Logger, name string, fn func()) {
	go Run(logger, name, fn)
}

// Beside calls fn, and runs beside in a goroutine of its own at the same time. When fn has returned or panicked, the
// context of both ends, and Beside returns once beside has too. The end of beside does not end fn.
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

// Run calls fn and returns when it does. A panic is logged as in Go.
func Run(logger *slog.Logger, name string, fn func()) {
	if err := Do(name, fn); err != nil {
		logger.Error("recovered from a panic", "err", err, "stack", string(err.(*Panic).Stack))
	}
}

// Do calls fn and turns a panic into a *Panic, which the caller logs or returns. Without a panic the result is nil.
func Do(name string, fn func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{Name: name, Value: v, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}
