package load

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Times is a histogram of durations of constant size. Its percentiles are exact to 3 percent.
type Times struct {
	buckets [64 * perOctave]int64
	count   int64
}

// perOctave is the number of buckets between a duration and its double.
const perOctave = 32

func (t *Times) add(d time.Duration) {
	n := uint64(max(d, 1))
	octave := bits.Len64(n) - 1
	t.buckets[octave*perOctave+int((n-1<<octave)*perOctave>>octave)]++
	t.count++
}

// Count returns the number of durations.
func (t *Times) Count() int64 { return t.count }

// Percentile returns the duration that the given share of all, such as 0.99, do not exceed. It returns 0 if there are
// none.
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

// pushes hold the times of one type's responses.
type pushes struct {
	mu             sync.Mutex
	answer, spread Times
	known          map[string]*push // by version
	versions       []string         // the keys of known, the newest last
}

// push is a version that a control plane sent unasked, to each proxy once. Versions are content hashes, so reverting a
// change brings back an old version.
type push struct {
	first  time.Time
	single bool     // only one proxy has it so far
	has    []uint64 // one bit for each proxy
}

// give records that a proxy has the push, and reports whether it had it before.
func (p *push) give(proxy int) bool {
	word, bit := proxy/64, uint64(1)<<(proxy%64)
	if word >= len(p.has) {
		p.has = append(p.has, make([]uint64, word+1-len(p.has))...)
	}
	had := p.has[word]&bit != 0
	p.has[word] |= bit
	return had
}

// maxVersions is how many versions may be in flight to proxies at once.
const maxVersions = 256

// answered adds the time from a request to its response.
func (p *pushes) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer.add(took)
}

// pushed records a response that no request asked for. A version that only one proxy receives has no spread.
func (p *pushes) pushed(proxy int, version string, at time.Time) {
	if version == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.known[version]; ok && !one.give(proxy) {
		if one.single {
			one.single = false
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
	one := &push{first: at, single: true}
	one.give(proxy)
	p.known[version] = one
	if p.versions = append(p.versions, version); len(p.versions) > maxVersions {
		delete(p.known, p.versions[0])
		p.versions = p.versions[1:]
	}
}

// Answers returns the times from requests to their responses of a type. Requests of a proxy that connects again and
// names what it holds are left out, because the control plane need not answer them.
func (f *Fleet) Answers(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer
}

// Spread returns how much later than the first proxy each proxy received an unasked version of a type. The first proxy
// has 0. Responses with one version are one push, until a proxy receives that version again. Versions that only one
// proxy received are left out.
func (f *Fleet) Spread(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spread
}
