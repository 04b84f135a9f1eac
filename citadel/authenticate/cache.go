package authenticate

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// cache keeps a bounded number of results of token checks, each until its expiry. Safe for concurrent use.
type cache[V any] struct {
	list *lru.Cache[reviewKey, expiring[V]]
	life time.Duration
}

type expiring[V any] struct {
	value V
	until time.Time
}

func newCache[V any](size int, life time.Duration) cache[V] {
	list, err := lru.New[reviewKey, expiring[V]](size)
	if err != nil {
		panic(err) // unreachable: limits are validated to be positive
	}
	return cache[V]{list, life}
}

func (c cache[V]) add(k reviewKey, v V) { c.addFor(k, v, c.life) }

func (c cache[V]) addFor(k reviewKey, v V, life time.Duration) {
	c.list.Add(k, expiring[V]{v, time.Now().Add(life)})
}

func (c cache[V]) remove(k reviewKey) { c.list.Remove(k) }

func (c cache[V]) get(k reviewKey) (v V, ok bool) {
	e, ok := c.list.Get(k)
	if !ok || !time.Now().Before(e.until) {
		return v, false
	}
	return e.value, true
}
