package node

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestFormat has Parse read what Format wrote: every field of a Proxy that a bootstrap can say is set, and comes back.
func TestFormat(t *testing.T) {
	want, err := Parse(decode(t, whole))
	must.Succeed(t, err)
	want.Envoy, want.Capabilities = [3]uint32{}, 0 // what only the running Envoy says
	want.RegisterGroup, want.ReadinessProbe = "group", true
	for v, i := reflect.ValueOf(*want), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() != (name == "Envoy" || name == "Capabilities") {
			t.Errorf("%s is not put to the test", name)
		}
	}
	for _, p := range []*Proxy{want, {
		Type: Router, ID: "gw.a", Service: "gw.a", Name: "gw", Namespace: "a", Domain: "a.svc.cluster.local", IPs: []string{"10.0.0.2"},
		Interception: Redirect,
	}} {
		got, err := Parse(Format(p))
		must.Succeed(t, err)
		if d := cmp.Diff(p, got); d != "" {
			t.Error(d)
		}
	}
}
