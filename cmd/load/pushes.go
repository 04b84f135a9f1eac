package load

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Times are summed up such that any number of them takes the same room; a percentile is exact to 3 percent.
type Times struct {
	buckets [64 * perOctave]int64
	count   int64
}

// perOctave is how many buckets there are between a time and its double.
const perOctave = 32

func (t *Times) add(d time.Duration) {
	n := uint64(max(d, 1))
	octave := bits.Len64(n) - 1
	t.buckets[octave*perOctave+int((n-1<<octave)*perOctave>>octave)]++
	t.count++
}

// Count is how many there are.
func (t *Times) Count() int64 { return t.count }

// Percentile returns the time that so much of all, 0.99 for instance, do not exceed; zero of none.
func (t *Times) Percentile(share float64) time.Duration {
	rank := min(int64(share*float64(t.count)), t.count-1)
	for i, n := range t.buckets {
		if rank -= n; rank < 0 && n > 0 {
			octave, part := i/perOctave, i%perOctave
			return time.Duration((float64(part) + 0.5 + perOctave) / perOctave * float64(uint64(1)<<octave))
		}
	}
	return 0
}

// pushes are the times of one type's responses.
type pushes struct {
	mu             sync.Mutex
	answer, spread Times
	known          map[string]*push // by version
	versions       []string         // of known, the newest last
}

// push is what a control plane sent of its own accord: one version, to each proxy once. A version is but a hash of what
// is sent, so that a change and its way back bring it again.
type push struct {
	first time.Time
	alone bool     // one proxy has it so far
	has   []uint64 // a bit a proxy
}

// give notes that a proxy has it, and reports whether it had it already.
func (p *push) give(proxy int) bool {
	word, bit := proxy/64, uint64(1)<<(proxy%64)
	if word >= len(p.has) {
		p.has = append(p.has, make([]uint64, word+1-len(p.has))...)
	}
	had := p.has[word]&bit != 0
	p.has[word] |= bit
	return had
}

// manyVersions is how many versions may be on their way to proxies at once.
const manyVersions = 256

// answered counts the time from a request to its response.
func (p *pushes) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer.add(took)
}

// pushed counts what came unasked. What only one proxy gets, for it is made for that one, has no spread.
func (p *pushes) pushed(proxy int, version string, at time.Time) {
	if version == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.known[version]; ok && !one.give(proxy) {
		if one.alone {
			one.alone = false
			p.spread.add(0)
		}
		p.spread.add(at.Sub(one.first))
		return
	}
	if p.known == nil {
		p.known = map[string]*push{}
	}
	if i := slices.Index(p.versions, version); i >= 0 {
		p.versions = slices.Delete(p.versions, i, i+1)
	}
	one := &push{first: at, alone: true}
	one.give(proxy)
	p.known[version] = one
	if p.versions = append(p.versions, version); len(p.versions) > manyVersions {
		delete(p.known, p.versions[0])
		p.versions = p.versions[1:]
	}
}

// Answers are the times from a request to the response of a type. Those of a proxy that connects again and names what
// it holds are left out: where nothing is new a control plane need not answer them, and what comes next may be no
// answer.
func (f *Fleet) Answers(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer
}

// Spread returns, for what a control plane sent of a type unasked, how much later than the first proxy each got
// it, the first with zero. Responses of one version are taken for one push, until a proxy gets that version again; what
// no two proxies got is left out.
func (f *Fleet) Spread(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spread
}
