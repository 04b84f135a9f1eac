package crd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// A kind whose requests are taken and never answered is a finding, keeps what it had, and is asked anew; the others go
// on.
func TestUnansweredRequests(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	a.put("configmaps", "a", "m", configMap("1"))
	a.put("secrets", "a", "s", object{"type": "Opaque", "data": object{"k": "dg=="}})
	o := Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Secret}, Client: a.config()}
	r := &reader{t: t, objects: map[kinds.Key]*kinds.Object{}}
	o.Handler = r.handle
	s, err := New(o)
	must.Succeed(t, err)
	r.Source = s
	s.timeouts = timeouts{finding: outageDelay + 100*time.Millisecond, answer: 4 * time.Second, silent: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	r.synced()

	a.with(func() { a.unanswered = "secrets" })
	before := a.count("secrets")
	a.cutStreams(false)
	d := r.finding("APIServer")
	if !strings.Contains(d.Message, "Secret") || !strings.Contains(d.Message, errUnanswered.Error()) {
		t.Errorf("%+v", d)
	}
	a.put("configmaps", "a", "m", configMap("2"))
	until(t, "others go on", func() bool { return valueOf(r.get(kinds.ConfigMap, "a", "m")) == "2" })
	until(t, "asked anew", func() bool { return a.count("secrets") > before+1 })
	if r.get(kinds.Secret, "a", "s") == nil {
		t.Error("the secret is gone")
	}
	a.with(func() { a.unanswered = "" })
	r.noFindings()
	a.put("secrets", "a", "t", object{"type": "Opaque", "data": object{"k": "dg=="}})
	until(t, "what is new comes", func() bool { return r.get(kinds.Secret, "a", "t") != nil })
}
