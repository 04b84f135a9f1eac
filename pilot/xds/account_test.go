package xds

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// TestPushesAreCounted: what streams are sent because of a push is counted in it, until the last acknowledgement. What
// they ask for by themselves is not, unless the push led to it. A rejection is traced, as what is sent again of it is.
func TestPushesAreCounted(t *testing.T) {
	log := pushes.New(pushes.Options{})
	r := newRig(t, func(o *Options) {
		o.Pushes = log
		o.World = tracing{sources: func(r *envoy.Resource) []pushes.Object { return []pushes.Object{{Kind: "Source", Name: r.Name}} }}
	})
	publish := func(edits ...string) {
		s := r.fake.Publish(true, edits...)
		log.Add(pushes.Commit{Revision: s.Revision})
		r.server.Publish(s)
	}
	push := func(id uint64) pushes.Push { return log.Since(id-1, 0).Pushes[0] }
	ack := func(c *deltaClient, m *discoveryv3.DeltaDiscoveryResponse) {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
	reject := func(c *deltaClient, m *discoveryv3.DeltaDiscoveryResponse, message string) {
		c.send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: message},
		})
	}

	publish("cds a=1", "eds a=1", "lds l=1")
	one, two := r.delta("one.a"), r.delta("two.a")
	for _, c := range []*deltaClient{one, two} {
		ack(c, c.expect("cds a=1"))
		c.subscribe("lds")
		ack(c, c.expect("lds l=1"))
	}
	eventually(t, "both have started", func() bool {
		u := log.Since(0, 0).Unprompted
		return u.Proxies == 2 && u.Acked == 2 && u.Pending == 0 && u.Responses == 4 && u.Resources == 4 && u.Bytes > 0
	})
	if p := push(1); p.Proxies != 0 || p.Responses != 0 {
		t.Errorf("what streams start with counts for the push before: %+v", p)
	}

	publish("cds b=1")
	m := one.expect("cds b=1")
	n := two.expect("cds b=1")
	eventually(t, "both were sent the push", func() bool {
		p := push(2)
		return p.Proxies == 2 && p.Pending == 2 && p.Acked == 0 && p.LastAck == nil && p.LastSend != nil
	})
	ack(one, m)
	one.subscribe("eds", "b") // as an Envoy does for a cluster that is new
	ack(one, one.expect("eds b=none"))
	reject(two, n, "no such cluster")
	eventually(t, "one has taken it, the other has not", func() bool {
		p := push(2)
		return p.Acked == 1 && p.Rejected == 1 && p.Pending == 0 && p.Responses == 3 && p.LastAck != nil && len(p.Types) == 2
	})
	list := push(2).Rejections
	if len(list) != 1 || list[0].Proxy != "two.a" || list[0].Type != "cds" || list[0].Message != "no such cluster" ||
		len(list[0].Sources) != 1 || list[0].Sources[0].Name != "b" {
		t.Errorf("rejections %+v", list)
	}

	// Of many resources, those that the message names.
	publish("lds l=2", "lds bad=1", "lds x1=1", "lds x2=1", "lds x3=1", "lds x4=1", "lds x5=1", "lds x6=1", "lds x7=1", "lds x8=1")
	const all = "lds bad=1 l=2 x1=1 x2=1 x3=1 x4=1 x5=1 x6=1 x7=1 x8=1"
	ack(one, one.expect(all))
	reject(two, two.expect(all), "listener(s) bad: no such filter")
	eventually(t, "a rejection is traced to the listener that it names", func() bool {
		list := push(3).Rejections
		return len(list) == 1 && list[0].Of == 10 && strings.Join(list[0].Resources, " ") == "bad" && len(list[0].Sources) == 1 &&
			list[0].Sources[0].Name == "bad"
	})

	publish("cds c=1")
	one.expect("cds c=1") // and leaves
	one.cancel()
	eventually(t, "a stream that ends waits no more", func() bool { return push(4).Lost == 1 && push(4).Pending <= 1 })
}

// TestNamesInMessages: a name counts where it stands by itself.
func TestNamesInMessages(t *testing.T) {
	for message, want := range map[string]bool{
		"Error adding/updating listener(s) 0.0.0.0_80: no such filter": true,
		"0.0.0.0_80":             true,
		"listener '0.0.0.0_80'.": true,
		"Error adding 0.0.0.0_8080: no, 10.0.0.0_80": false,
		"0.0.0.0_80.example":                         false,
		"":                                           false,
		"0.0.0.0_800 and then 0.0.0.0_80":            true,
	} {
		if got := mentions(message, "0.0.0.0_80"); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
