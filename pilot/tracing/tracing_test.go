package tracing

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// TestPushesAreTraced checks that a push is traced when its proxies have answered, with its stages in sequence, and
// that an unanswered push is traced when Patience is over.
func TestPushesAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := pushes.New(pushes.Options{})
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			Run(ctx, Options{Pushes: log, Tracer: provider.Tracer("test"), Logger: slog.New(slog.DiscardHandler)})
		})
		commit := func(revision uint64) *pushes.Tally {
			now := time.Now()
			log.Add(pushes.Commit{
				Revision: revision, Received: now.Add(-110 * time.Millisecond), Began: now.Add(-10 * time.Millisecond), Published: now,
				Snapshot: 4 * time.Millisecond, Prepare: 6 * time.Millisecond,
				Triggers: map[string]int{"config": 1}, Objects: []pushes.Object{{Kind: "VirtualService", Namespace: "a", Name: "web"}},
			})
			return log.Tally(revision)
		}
		tally := commit(1)
		tally.Started()
		tally.Sent(time.Now().Add(2*time.Millisecond), envoy.RouteType, 1, 0, 100)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(spans.Ended()); n > 0 {
			t.Fatalf("%d spans before the proxy has answered", n)
		}
		tally.Ended(time.Now(), pushes.Acknowledged, false)
		log.Reject(tally, pushes.Rejection{Push: 1, Time: time.Now(), Proxy: "web-0.a", Type: "lds", Code: "InvalidArgument", Message: "no"}, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		ended := spans.Ended()
		names, root := "", ended[len(ended)-1]
		for _, s := range ended {
			names += s.Name() + ", "
			if s.SpanContext().TraceID() != root.SpanContext().TraceID() || s.StartTime().Before(root.StartTime()) ||
				s.EndTime().After(root.EndTime()) {
				t.Errorf("%s is not within its push", s.Name())
			}
		}
		if names != "collect changes, snapshot, prepare, translate and send, acknowledge, push, " {
			t.Errorf("spans %s", names)
		}
		if ended[1].EndTime().Sub(ended[1].StartTime()) != 4*time.Millisecond || len(root.Events()) != 1 {
			t.Errorf("%v", root.Events())
		}
		commit(2).Started()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(spans.Ended()) - len(ended); n != 4 { // nothing was sent
			t.Errorf("%d spans of a push without an answer", n)
		}
		if root.Status().Code == codes.Ok {
			t.Error("a push is not called good")
		}
		cancel()
		wg.Wait()
	})
}
