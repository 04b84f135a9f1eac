package authority

import (
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// TestTimesOfDay has the server's own certificate renewed by the time of day: a comparison of two times that both have
// a reading of the monotonic clock would not notice that the clock was set, or that the machine slept.
func TestTimesOfDay(t *testing.T) {
	b, err := pki.NewSelfSigned("cluster.local", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{o: Options{CA: ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour}), Names: func() []string { return []string{"localhost"} }, Now: time.Now}}
	s, err := a.newServing(t.Context(), b, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]time.Time{"issued": s.issued, "renewal": s.renewal} {
		if text := at.String(); strings.Contains(text, "m=") {
			t.Errorf("%s is %s, which has a reading of the monotonic clock", name, text)
		}
	}
}
