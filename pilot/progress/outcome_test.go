package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// TestMayBeConcerned: a push may concern every proxy until it has been compared. Proxies that it turns out not to
// concern are counted neither in the history nor in later answers.
func TestMayBeConcerned(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFake(version(1, "a"))
	past := func() Past { return tr.OwnHistory(web).Versions[0] }
	maybe := debt{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}
	f.debts = []debt{maybe, maybe, maybe}
	f.commit(tr, true, change(version(2, "b")))
	for f.published = 1; f.published <= 2; f.published++ {
		if more := tr.look(); !more || past().Proxies != 0 || past().Counted {
			t.Errorf("published up to %d: %+v", f.published, past())
		}
	}
	f.debts = nil
	tr.look()
	if p := past(); p.Proxies != 0 || !p.Counted || p.Took == nil {
		t.Errorf("none was concerned: %+v", p)
	}
	expect(t, "none was concerned", tr.Own(q), WithoutEffect, "it changed nothing")

	f.debts = []debt{maybe, maybe, maybe}
	for i := range f.debts {
		f.debts[i].from, f.debts[i].to = 3, 3
	}
	f.debts[0].settled, f.debts[1].State = true, xds.Rejected
	f.commit(tr, true, change(version(3, "c")))
	tr.look()
	if p := past(); p.Proxies != 2 || p.Counted || p.Took != nil {
		t.Errorf("one has it, one has rejected it: %+v", p)
	}
	f.debts = f.debts[:2]
	tr.look()
	if p := past(); p.Proxies != 2 || !p.Counted || p.Took != nil {
		t.Errorf("the third is not concerned: %+v", p)
	}
}

// TestHistoryOfInvalid: a version that is not used as it is written never came into force.
func TestHistoryOfInvalid(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	f.commit(tr, true, change(version(2, "b")))
	tr.look()
	f.unusable[web] = 3
	tr.look()
	f.debts = []debt{{from: 3, to: 3, settled: true}}
	f.now = f.now.Add(time.Second)
	f.commit(tr, true, change(version(3, "partly")))
	tr.look()
	delete(f.unusable, web)
	f.commit(tr, true, change(version(4, "c")))
	tr.look()
	var got []string
	for _, v := range tr.OwnHistory(web).Versions {
		text := map[bool]string{true: "invalid", false: "valid"}[v.Invalid]
		if v.Took != nil {
			text += " took"
		}
		got = append(got, text)
	}
	if s := strings.Join(got, ", "); s != "valid took, invalid, valid took, valid" {
		t.Errorf("the newest first: %s", s)
	}
	h := History{Versions: []Past{{Generation: 3, Took: new(float64)}}}
	if h.merge([]Past{{Generation: 3, Took: new(float64), Invalid: true}}); !h.Versions[0].Invalid || h.Versions[0].Took != nil {
		t.Errorf("another replica found it invalid: %+v", h.Versions[0])
	}
}
