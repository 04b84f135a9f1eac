package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// Log is the log of pushes. *pushes.Log implements it.
type Log interface {
	Since(revision uint64, most int) pushes.Page
	Wait(ctx context.Context, since uint64)
}

// Options configure Run.
type Options struct {
	Pushes Log
	Tracer trace.Tracer
	Logger *slog.Logger
	// Patience is how long after its commit Run waits for a push's proxies to answer. The default is ten seconds.
	Patience time.Duration
	// Interval is the time between two checks of a push that proxies have not answered. The default is 250 ms.
	Interval time.Duration
}

// Run writes a trace of each push until ctx ends.
func Run(ctx context.Context, o Options) {
	o.Patience, o.Interval = cmp.Or(o.Patience, 10*time.Second), cmp.Or(o.Interval, 250*time.Millisecond)
	var traced uint64
	for ctx.Err() == nil {
		o.Pushes.Wait(ctx, traced)
		page := o.Pushes.Since(traced, 0)
		if traced != 0 && page.Oldest > traced+1 {
			o.Logger.Debug("pushes were forgotten before they were traced", "scope", "ads", "from", traced+1, "to", page.Oldest-1)
		}
		for _, p := range page.Pushes {
			if !o.settled(p) {
				break
			}
			write(ctx, o.Tracer, p)
			traced = p.ID
		}
		if page.Newest > traced { // the next push still waits for its proxies
			select {
			case <-time.After(o.Interval):
			case <-ctx.Done():
			}
		}
	}
}

// settled reports whether a push can be traced: its proxies have all answered, or Patience is over. A push that has
// just been committed has no pending proxies yet, so settled also waits for four intervals.
func (o *Options) settled(p pushes.Push) bool {
	age := time.Since(published(p))
	return age > o.Patience || age > 4*o.Interval && p.Pending == 0
}

func published(p pushes.Push) time.Time {
	return after(p.Time, p.Stages.Throttle+p.Stages.Snapshot+p.Stages.Prepare)
}

func after(t time.Time, milliseconds float64) time.Time {
	return t.Add(time.Duration(milliseconds * float64(time.Millisecond)))
}

// write exports the trace of one push.
func write(ctx context.Context, tracer trace.Tracer, p pushes.Push) {
	causes := lists.Map(p.Causes, func(c pushes.Object) string { return c.String() })
	attributes := []attribute.KeyValue{
		attribute.Int64("push.revision", int64(p.ID)), attribute.Bool("push.full", p.Full),
		attribute.StringSlice("push.causes", causes), attribute.Int("push.causes.more", p.More),
		attribute.Int64("push.proxies", p.Proxies), attribute.Int64("push.acked", p.Acked),
		attribute.Int64("push.rejected", p.Rejected), attribute.Int64("push.lost", p.Lost),
		attribute.Int64("push.pending", p.Pending), attribute.Int64("push.responses", p.Responses),
		attribute.Int64("push.resources", p.Resources),
		attribute.Int64("push.removed", p.Removed), attribute.Int64("push.bytes", p.Bytes),
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Triggers)) {
		attributes = append(attributes, attribute.Int("push.triggers."+reason, p.Triggers[reason]))
	}
	ctx, root := tracer.Start(ctx, "push", trace.WithNewRoot(), trace.WithTimestamp(p.Time), trace.WithAttributes(attributes...))
	for _, r := range p.Rejections {
		root.AddEvent("rejected", trace.WithTimestamp(r.Time), trace.WithAttributes(
			attribute.String("proxy", r.Proxy), attribute.Int("proxies", r.Proxies),
			attribute.String("type", r.Type), attribute.String("code", r.Code),
			attribute.String("message", r.Message), attribute.StringSlice("resources", r.Resources)))
	}
	if p.Rejected > 0 {
		root.SetStatus(codes.Error, fmt.Sprintf("%d proxies rejected it", p.Rejected))
	}
	stage := func(name string, from, to time.Time, more ...attribute.KeyValue) {
		_, span := tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(more...))
		span.End(trace.WithTimestamp(to))
	}
	snapshotBegan := after(p.Time, p.Stages.Throttle)
	snapshotMade := after(snapshotBegan, p.Stages.Snapshot)
	stage("collect changes", p.Time, snapshotBegan)
	stage("snapshot", snapshotBegan, snapshotMade)
	stage("prepare", snapshotMade, published(p))
	if p.FirstSend != nil && p.LastSend != nil {
		var types []attribute.KeyValue
		for _, t := range p.Types {
			types = append(types,
				attribute.Int64("push."+t.Type+".responses", t.Responses),
				attribute.Int64("push."+t.Type+".resources", t.Resources),
				attribute.Int64("push."+t.Type+".bytes", t.Bytes))
		}
		stage("translate and send", published(p), *p.LastSend, types...)
		if p.LastAck != nil {
			stage("acknowledge", *p.FirstSend, *p.LastAck)
		}
	}
	root.End(trace.WithTimestamp(after(p.Time, p.Stages.Total)))
}
