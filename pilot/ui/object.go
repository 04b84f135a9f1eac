package ui

import (
	"fmt"
	"net/url"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// objectPage is one object: whether it is in force at the proxies of all replicas, and its last versions.
type objectPage struct {
	Answer   progress.Answer  `json:"answer"`
	History  progress.History `json:"history"`
	Position string           `json:"position,omitempty"` // where it was read; empty for objects of an API server
}

// objectAnswer is the encoded page of an object, which all its viewers share.
type objectAnswer struct {
	encoded
	err error
}

// maxObjects bounds the objects whose pages are kept.
const maxObjects = 16

// object returns the page of the object that a query names.
func (u *UI) object(q url.Values) (encoded, error) {
	key, err := u.o.Progress.Find(q.Get("object"), q.Get("cluster"))
	if err != nil {
		return encoded{}, fmt.Errorf("%w: %w", errQuery, err)
	}
	a, _ := u.pageOf(key).get(u.o.Now)
	return a.encoded, a.err
}

// pageOf returns the section of an object. All objects that are kept share the time of one section.
func (u *UI) pageOf(key kinds.Key) *section[objectAnswer] {
	if s, ok := u.watched.Get(key); ok {
		return s
	}
	s := &section[objectAnswer]{build: func() objectAnswer { return u.makeObject(key) }, sharers: u.watched, background: u}
	if other, ok, _ := u.watched.PeekOrAdd(key, s); ok {
		return other
	}
	return s
}

// makeObject asks all replicas about an object.
func (u *UI) makeObject(key kinds.Key) (a objectAnswer) {
	var p objectPage
	var both sync.WaitGroup // each may wait for a replica
	both.Add(1)
	safe.Go(u.o.Logger, "history of an object", func() {
		defer both.Done()
		p.History = u.o.Progress.AskHistory(u.closing, key)
	})
	p.Answer = u.o.Progress.Ask(u.closing, progress.Question{Key: key})
	both.Wait()
	p.Answer.Uptime = 0 // it would make each answer a new one
	if o := u.o.World.Origin(key); o != nil {
		p.Position = o.Position
	}
	a.encoded, a.err = encodeJSON(p)
	return a
}
