package load

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// A version that comes again, because a change was reverted, is a new push. Versions that only one proxy receives are
// no push.
func TestSpreadOfPushes(t *testing.T) {
	const proxies = 200
	var p pushes
	at := time.Now()
	for n := range 3 * maxVersions {
		for i := range proxies {
			p.pushed(i, []string{"there", "back"}[n%2], at.Add(time.Duration(i)*time.Microsecond))
		}
		at = at.Add(time.Second)
	}
	if got, most := p.spread.Count(), p.spread.Percentile(1); got != 3*maxVersions*proxies || most > time.Millisecond {
		t.Errorf("%d responses spread over %v, want %d over 200µs", got, most, 3*maxVersions*proxies)
	}
	var own pushes
	for i := range 2 * maxVersions {
		own.pushed(i, fmt.Sprint(i), at)
	}
	if n := own.spread.Count(); n != 0 || len(own.known) != maxVersions || len(own.versions) != maxVersions {
		t.Errorf("%d responses spread, want none: each proxy has its own; %d and %d versions are known", n, len(own.known), len(own.versions))
	}
}

// A response to a proxy that connected again may answer no request, so it is neither an answer nor a push.
func TestResumedAnswersAreNotCounted(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			p := &plane{t: t, asked: map[string][]string{}, changes: make(chan string)}
			f := fleet(t, p.serve(), 2, whole)
			must.Succeed(t, f.Reconnect(t.Context()))
			await(t, func() bool { return f.Counters().Types[Routes].Responses == 4 })
			want := int64(2)
			if whole {
				want = 4
			}
			answers, spread := f.Answers(Routes), f.Spread(Routes)
			if answers.Count() != want || spread.Count() != 0 {
				t.Errorf("%d answers and %d pushed, want %d and none", answers.Count(), spread.Count(), want)
			}
		})
	}
}

// The smallest rate connects one proxy.
func TestTinyRate(t *testing.T) {
	p := &plane{t: t, asked: map[string][]string{}}
	address := p.serve()
	f, err := Start(t.Context(), Options{Address: address, Proxies: 3, Rate: 1e-12, Identity: func(int) Identity { return Identity{} },
		Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	t.Cleanup(f.Stop)
	await(t, func() bool { return f.Live() > 0 })
	time.Sleep(100 * time.Millisecond)
	if n := f.Live(); n != 1 {
		t.Errorf("%d proxies connected, want one in 30000 years", n)
	}
}
