package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOwnerAnswersWhileClientReadsNothing: the owner of a stream does not wait for a client that reads nothing and says
// nothing, however small its responses.
func TestOwnerAnswersWhileClientReadsNothing(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1")
	c := r.delta("a.a")
	c.expect("cds a=1")
	c.subscribe("eds", "a")
	c.expect("eds a=1")
	other := r.delta("b.a")
	other.expect("cds a=1")
	r.grouped("a")
	for i := range 400 {
		r.publish(false, fmt.Sprintf("eds a=%d%s", i, strings.Repeat("x", 2<<10)))
		time.Sleep(2 * time.Millisecond)
	}
	eventually(t, "both say what they have", func() bool {
		said := r.server.Clients()
		return len(said) == 2 && len(said[0].Types) > 0 && len(said[1].Types) > 0
	})
}

// TestBlockedStreamHidesNoOther: a stream that does not answer hides none of the others.
func TestBlockedStreamHidesNoOther(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Translations = 2 })
	r.publish(true, "cds a=1")
	held := make(chan struct{})
	defer close(held)
	r.fake.Held.Store("a.a", held)
	r.delta("a.a")
	eventually(t, "it is there", func() bool { return len(r.server.streams()) == 1 })
	r.delta("b.a").expect("cds a=1")
	for _, x := range r.server.Clients() {
		if (len(x.Types) == 0) != (x.Proxy.ID == "a.a") {
			t.Errorf("%s has %d types", x.ID, len(x.Types))
		}
	}
}
