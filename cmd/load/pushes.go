package load

import (
	"math/bits"
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

// Percentile gives the time that so much of all, 0.99 for instance, do not exceed; zero of none.
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
	first          map[string]time.Time // by version
	versions       []string             // of first, the newest last
}

// manyVersions is how many versions may be on their way to proxies at once.
const manyVersions = 256

func (p *pushes) add(version string, at, asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !asked.IsZero() {
		p.answer.add(at.Sub(asked))
		return
	}
	if version == "" {
		return
	}
	if p.first == nil {
		p.first = map[string]time.Time{}
	}
	first, known := p.first[version]
	if !known {
		first = at
		p.first[version] = at
		if p.versions = append(p.versions, version); len(p.versions) > manyVersions {
			delete(p.first, p.versions[0])
			p.versions = p.versions[1:]
		}
	}
	p.spread.add(at.Sub(first))
}

// Answers are the times from a request to the response of a type.
func (f *Fleet) Answers(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer
}

// Spread tells of what a control plane sent of a type without being asked how much later than the first proxy each got it, the first with zero. Responses of one
// version are taken for one push.
func (f *Fleet) Spread(kind Type) Times {
	p := &f.pushes[kind]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spread
}
