package progress

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// TestBriefs: about many objects, Briefs says what Own says about each, and asks the streams seldom.
func TestBriefs(t *testing.T) {
	seed, _ := histories.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		named := func(i int, generation int64) *kinds.Object {
			o := version(generation, fmt.Sprint(generation))
			o.Name = fmt.Sprint("web-", i)
			return o
		}
		const objects = 12
		var first []*kinds.Object
		var keys []kinds.Key
		for i := range objects {
			if keys = append(keys, named(i, 1).Key); i%2 == 0 {
				first = append(first, named(i, 1))
			}
		}
		f, tr := newFake(first...)
		commits := r.IntN(20)
		for n := range commits {
			var batch []kinds.Change
			for range 1 + r.IntN(3) {
				c := change(named(r.IntN(objects), int64(n+2)))
				if r.IntN(4) == 0 {
					c.Object = nil
				}
				batch = append(batch, c)
			}
			f.commit(tr, r.IntN(5) > 0, batch...)
		}
		for range r.IntN(5) {
			d := debt{from: uint64(r.IntN(commits + 2)), settled: r.IntN(2) == 0}
			d.to = d.from + uint64(r.IntN(3))
			d.Owing = xds.Owing{Proxy: "p.a", State: xds.OwingState(r.IntN(3))}
			f.debts = append(f.debts, d)
		}
		for range r.IntN(3) {
			f.began = append(f.began, uint64(r.IntN(commits+2)))
		}
		if r.IntN(3) == 0 {
			f.idle = map[string]bool{keys[1].String(): true}
		}
		if r.IntN(3) == 0 {
			f.published = uint64(r.IntN(commits + 2))
		}
		if f.unknown = r.IntN(8) == 0; r.IntN(2) == 0 {
			tr.look() // the outcomes are known
		}
		f.hidden[keys[0]], f.pending[keys[2]], f.unusable[keys[4]] = r.IntN(2) == 0, r.IntN(2) == 0, 9
		for i, b := range tr.Briefs(keys) {
			want := tr.Own(Question{Key: keys[i]})
			if b.State != want.State || b.Why != want.Why || b.State != InForce && b.State != WithoutEffect && b.Proxies != want.Proxies {
				t.Fatalf("seed %d: %s: %+v, want %q (%s) %+v", seed, keys[i].Name, b, want.State, want.Why, want.Proxies)
			}
		}
	}
	f, tr := newFake()
	var keys []kinds.Key
	for i := range 1000 {
		o := version(1, "a")
		o.Name = fmt.Sprint(i)
		keys = append(keys, o.Key)
		f.commit(tr, true, change(o))
		tr.look()
	}
	f.debts = []debt{{from: 990, to: 990, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}}
	f.asked = 0
	behind := 0
	for _, b := range tr.Briefs(keys) {
		if b.State == Behind {
			behind++
		}
	}
	if behind != 1 || f.asked > 40 {
		t.Errorf("%d objects are behind, and the streams were asked %d times", behind, f.asked)
	}
}
