package safe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestDo(t *testing.T) {
	if err := Do("quiet", func() {}); err != nil {
		t.Fatalf("no panic, but %v", err)
	}
	err := Do("reader", func() { panic(io.ErrUnexpectedEOF) })
	var p *Panic
	if !errors.As(err, &p) || p.Name != "reader" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %#v", err)
	}
	if !bytes.Contains(p.Stack, []byte("TestDo")) {
		t.Errorf("the stack does not show who panicked:\n%s", p.Stack)
	}
	err = Do("index", func() {
		var s []int
		_ = s[len(s)]
	})
	if err == nil || !strings.HasPrefix(err.Error(), "panic in index: runtime error: index out of range") {
		t.Errorf("got %v", err)
	}
}

func TestGo(t *testing.T) {
	var buf bytes.Buffer
	done := make(chan struct{})
	h := &notify{Handler: slog.NewTextHandler(&buf, nil), done: done}
	Go(slog.New(h), "owner", func() { panic("boom") })
	<-done
	for _, want := range []string{"level=ERROR", `err="panic in owner: boom"`, "stack=", "TestGo"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %q in %s", want, buf.String())
		}
	}
}

// TestBeside: both end when fn does, however it ends, and a panic of beside ends nothing else.
func TestBeside(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for name, fn := range map[string]func(context.Context){
		"returns": func(context.Context) {},
		"panics":  func(context.Context) { panic("boom") },
	} {
		ended := false
		_ = Do(name, func() {
			Beside(t.Context(), logger, "beside", func(ctx context.Context) {
				<-ctx.Done()
				ended = true
			}, fn)
		})
		if !ended {
			t.Errorf("fn %s: beside has not ended", name)
		}
	}
	panicked, called := make(chan struct{}), false
	Beside(t.Context(), logger, "beside", func(context.Context) {
		defer close(panicked)
		panic("boom")
	}, func(ctx context.Context) {
		<-panicked
		called = ctx.Err() == nil
	})
	if !called {
		t.Error("a panic of beside has ended fn")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wait := func(ctx context.Context) { <-ctx.Done() }
	Beside(ctx, logger, "beside", wait, wait)
}

// notify closes done once a record has been written.
type notify struct {
	slog.Handler
	done chan struct{}
}

func (n *notify) Handle(ctx context.Context, r slog.Record) error {
	defer close(n.done)
	return n.Handler.Handle(ctx, r)
}
