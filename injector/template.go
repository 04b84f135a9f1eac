package injector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/template"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// maxOutput bounds the output of a template in bytes.
const maxOutput = 1 << 20

// compile returns a template that several goroutines may execute at the same time.
func compile(name, text string, f Functions) (*template.Template, error) {
	return template.New(name).Funcs(f.table()).Parse(text)
}

var errTooLong = fmt.Errorf("the template writes more than %d bytes", maxOutput)

// bounded is a writer that fails after a number of bytes, or after its context has ended, so that the template that
// writes to it ends.
type bounded struct {
	ctx  context.Context
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errTooLong
	}
	if b.ctx != nil && b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	return b.w.Write(p)
}

// execute returns the output of a template. When ctx ends it returns at once. The execution ends at its next write. An
// execution that writes nothing goes on and keeps its slot in running, whose capacity is the number of executions that
// may run at a time.
func execute(ctx context.Context, running chan struct{}, logger *slog.Logger, t *template.Template, d any) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	select {
	case running <- struct{}{}:
	default:
		select {
		case running <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("template %s: too many templates run on past their time", t.Name())
		}
	}
	done := make(chan result, 1)
	safe.Go(logger, "injection template", func() {
		defer func() { <-running }()
		var b bytes.Buffer
		var err error
		if p := safe.Do("injection template", func() { err = t.Execute(&bounded{ctx, &b, maxOutput}, d) }); p != nil {
			err = p
		}
		done <- result{b.Bytes(), err}
	})
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	switch {
	case errors.Is(r.err, context.DeadlineExceeded):
		return nil, fmt.Errorf("template %s takes too long", t.Name())
	case r.err != nil:
		return nil, fmt.Errorf("template %s: %w", t.Name(), r.err)
	}
	return r.text, nil
}
