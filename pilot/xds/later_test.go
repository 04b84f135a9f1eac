package xds

import "testing"

// TestLater: the server knows which proxies connected after a revision was published.
func TestLater(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	before := r.delta("before.a")
	before.acknowledge(before.expect("cds a=1"))
	r.publish(true, "cds a=2")
	before.acknowledge(before.expect("cds a=2"))
	if n, newest := r.server.Later(2); n != 0 || newest != 1 {
		t.Errorf("%d proxies connected later, the newest with revision %d", n, newest)
	}
	r.delta("after.a").expect("cds a=2")
	for revision, want := range map[uint64]int{1: 2, 2: 1, 3: 0} {
		if n, newest := r.server.Later(revision); n != want || newest != 2 {
			t.Errorf("revision %d: %d proxies, the newest with revision %d", revision, n, newest)
		}
	}
	r.stays(2, "1 of 1")
}
