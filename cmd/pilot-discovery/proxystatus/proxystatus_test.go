package proxystatus

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// What a proxy rejected and what it waits for stand below the table, each once.
func TestTroubleIsShown(t *testing.T) {
	now := time.Unix(1000, 0)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	all := []debug.ProxyStatus{{
		ProxyID: "web-0.a", ProxyType: "sidecar", ClusterID: "Kubernetes", Connected: *before(time.Hour), Waits: "for spring",
		Resources: map[string]debug.TypeStatus{
			"C": {Type: "cds", State: debug.Synced, Subscribed: "all", SentTime: before(61 * time.Second)},
			"L": {Type: "lds", State: debug.Failed, Subscribed: "all", SentTime: before(2 * time.Second),
				LastError: "INTERNAL: no such filter\n", ErrorTime: before(time.Second)},
			"E": {Type: "eds", State: debug.NotSent, Subscribed: "3"},
		},
	}}
	var out bytes.Buffer
	printProxies(&out, all, false, now)
	const want = `NAME      CLUSTER      TYPE      VERSION   CDS             LDS          EDS        RDS   CONNECTED
web-0.a   Kubernetes   sidecar   -         SYNCED (1m1s)   ERROR (2s)   NOT SENT   -     1h0m0s

web-0.a rejected LDS 1s ago: INTERNAL: no such filter

web-0.a waits: for spring
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	must.Succeed(t, printProxy(&out, all, "web-0.a", now))
	for _, line := range []string{"EDS    NOT SENT   never      never          3", "web-0.a rejected LDS 1s ago", "web-0.a waits"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
}
