package crd

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

type object = map[string]any

// reader runs a source and holds what it hands on.
type reader struct {
	*Source
	t       *testing.T
	metrics *prometheus.Registry
	log     *lockedBuffer
	stop    func()

	mu      sync.Mutex
	calls   [][]kinds.Change
	objects map[kinds.Key]*kinds.Object
	busy    bool
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func read(t *testing.T, a *apiServer, o Options, wanted ...kinds.Key) *reader {
	t.Helper()
	r := &reader{t: t, metrics: prometheus.NewRegistry(), objects: map[kinds.Key]*kinds.Object{}, log: &lockedBuffer{}}
	o.Client, o.Metrics, o.Handler, o.Logger = a.config(), r.metrics, r.handle, slog.New(slog.NewTextHandler(r.log, nil))
	s, err := New(o)
	must.Succeed(t, err)
	r.Source = s
	s.Want(wanted)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	var once sync.Once
	go func() { done <- s.Run(ctx) }()
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

func (r *reader) handle(changes []kinds.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		r.t.Error("two calls at a time")
	}
	r.busy = true
	r.calls = append(r.calls, changes)
	for _, c := range changes {
		_, had := r.objects[c.Key]
		if c.Object == nil {
			if !had {
				r.t.Errorf("%s is gone, but never came", c.Key)
			}
			delete(r.objects, c.Key)
			continue
		}
		if c.Object.Key != c.Key {
			r.t.Errorf("%s has the key %s", c.Key, c.Object.Key)
		}
		r.objects[c.Key] = c.Object
	}
	r.busy = false
}

func (r *reader) get(k *kinds.Kind, namespace, name string) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[kinds.Key{Kind: k, Namespace: namespace, Name: name, Cluster: r.opts.Cluster}]
}

func (r *reader) handled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within two minutes", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *reader) synced() {
	r.t.Helper()
	until(r.t, "synced", r.HasSynced)
}

// finding waits for a finding with that code.
func (r *reader) finding(code string) diag.Diagnostic {
	r.t.Helper()
	var out diag.Diagnostic
	until(r.t, "finding "+code, func() bool {
		for _, d := range r.Findings() {
			if d.Code == code {
				out = d
				return true
			}
		}
		return false
	})
	return out
}

// stalled returns the gauge of that name by resource.
func (r *reader) stalled() map[string]float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	must.Succeed(r.t, err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "pilot_k8s_watch_stalled" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "resource" {
					out[l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return out
}

func (r *reader) noFindings() {
	r.t.Helper()
	until(r.t, "no findings", func() bool { return len(r.Findings()) == 0 })
}

func sidecar(host string) object {
	return object{"spec": object{"egress": []any{object{"hosts": []any{host}}}}}
}

func hostOf(o *kinds.Object) string {
	if o == nil {
		return ""
	}
	return o.Spec.(*networkingv1.Sidecar).Egress[0].Hosts[0]
}

func configMap(value string) object { return object{"data": object{"k": value}} }

func valueOf(o *kinds.Object) string {
	if o == nil {
		return ""
	}
	return o.Spec.(*corev1.ConfigMap).Data["k"]
}

func forEachEncoding(t *testing.T, fn func(t *testing.T, change func(*apiServer))) {
	for name, change := range map[string]func(*apiServer){
		"protobuf": func(*apiServer) {}, "json": func(a *apiServer) { a.asJSON = true }, "old API": func(a *apiServer) { a.oldAPI = true },
		"old API in json": func(a *apiServer) { a.asJSON, a.oldAPI = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, change)
		})
	}
}
