package xds

import (
	"slices"
	"testing"
)

// Streams whose audience a push has nothing for sleep on, and have the newest when they ask for more.
func TestAudience(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1", "eds b=1", "rds x=1")
	left, right := r.delta("left.a"), r.delta("right.a")
	for c, name := range map[*deltaClient]string{left: "a", right: "b"} {
		c.expect("cds a=1")
		c.subscribe("eds", name)
		c.expect("eds " + name + "=1")
	}
	r.fake.still.Store(true)
	at := func(proxy string) (revision uint64) {
		all := r.server.streams()
		i := slices.IndexFunc(all, func(c *conn) bool { return c.proxy.ID == proxy })
		if i < 0 || !all[i].ask(t.Context(), func(s *session) { revision = s.revision }) {
			t.Fatalf("the stream of %s is gone", proxy)
		}
		return revision
	}
	looked := func() {
		eventually(t, "all audiences have looked", func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			for _, a := range r.server.audiences {
				a.mu.Lock()
				busy := a.looking
				a.mu.Unlock()
				if busy {
					return false
				}
			}
			return true
		})
	}
	// A new audience looks at one push before it knows what its streams have, and each seventh of the fake's Sets is another.
	for _, full := range []bool{true, false} {
		r.publish(full, "eds nobody=1")
		r.publish(full, "eds nobody=2")
		for _, id := range []string{"left.a", "right.a"} {
			eventually(t, id+" has looked", func() bool { return at(id) == r.server.newest().Revision })
		}
		r.publish(full, "eds a=2")
		left.expect("eds a=2")
		looked() // of two pushes in one it is told
		r.publish(full, "eds a=1")
		left.expect("eds a=1")
		looked()
		if is, newest := at("right.a"), r.server.newest().Revision; is != newest-2 {
			t.Errorf("full %t: the stream that nothing concerns is at revision %d of %d", full, is, newest)
		}
		r.publish(full, "eds b=2")
		right.expect("eds b=2")
		r.publish(full, "eds b=1")
		right.expect("eds b=1")
	}
	r.publish(true, "rds x=2")
	right.subscribe("rds", "x")
	right.expect("rds x=2")
	r.publish(true, "rds x=3", "cds a=2")
	left.expect("cds a=2")
	right.expect("cds a=2")
	right.expect("rds x=3")
}
