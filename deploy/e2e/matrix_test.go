package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// perCell is how many requests a cell sends, one after the other.
const perCell = 100

// protocol is one row of the matrix: what is sent, who must answer, and what the Envoys on the way must have counted.
type protocol struct {
	name string
	// new makes the sender and what closes it.
	new func(m *mesh) (send, func() error, error)
	// answers are all who must have answered.
	answers []string
	counts  []count
}

// count is a counter, of the Envoys of these pods together, that must grow by so many at least.
type count struct {
	pods    []string
	stat    string
	atLeast int
}

// upstream counts at the client's side, where stats are named after the cluster.
func upstream(pod, cluster, stat string, atLeast int) count {
	return count{pods: []string{pod}, stat: `^cluster\.` + quoteStat(cluster) + `;?\.` + stat + `$`, atLeast: atLeast}
}

// inbound counts at the servers' side.
func inbound(port int, stat string, atLeast int) count {
	return count{pods: servers, stat: fmt.Sprintf(`^cluster\.inbound\|%d\|\|;?\.%s$`, port, stat), atLeast: atLeast}
}

func quoteStat(s string) string { return strings.NewReplacer(".", `\.`, "|", `\|`).Replace(s) }

const (
	requests    = "upstream_rq_completed"
	connections = "upstream_cx_total"
)

var servers = []string{"echo-1", "echo-2"}

func from(pod string, make func(dial) send) func(*mesh) (send, func() error, error) {
	return func(m *mesh) (send, func() error, error) {
		return make(m.World.Pod(pod).Location.DialContext), func() error { return nil }, nil
	}
}

var protocols = []protocol{
	{
		name: "HTTP", answers: servers,
		new:    from("client", func(d dial) send { return overHTTP(d, "HTTP/1.1", "10.96.0.10:80", "echo") }),
		counts: []count{upstream("client", "outbound|80||echo.mesh.svc.cluster.local", requests, perCell), inbound(8080, requests, perCell)},
	}, {
		name: "HTTP/2", answers: servers,
		new:    from("client", func(d dial) send { return overHTTP(d, "HTTP/2.0", "10.96.0.10:81", "echo.mesh") }),
		counts: []count{upstream("client", "outbound|81||echo.mesh.svc.cluster.local", requests, perCell), inbound(8081, requests, perCell)},
	}, {
		name: "gRPC", answers: servers,
		new: func(m *mesh) (send, func() error, error) {
			return overGRPC(m.World.Pod("client").Location.DialContext, "10.96.0.10:82")
		},
		counts: []count{upstream("client", "outbound|82||echo.mesh.svc.cluster.local", requests, perCell), inbound(8082, requests, perCell)},
	}, {
		name: "TCP", answers: servers,
		new: from("client", func(d dial) send { return overTCP(d, "10.96.0.10:9000") }),
		counts: []count{upstream("client", "outbound|9000||echo.mesh.svc.cluster.local", connections, perCell),
			inbound(9000, connections, perCell)},
	}, {
		name: "sniffed HTTP", answers: servers,
		new: from("client", func(d dial) send { return overHTTP(d, "HTTP/1.1", "10.96.0.11:7000", "sniffed-http") }),
		counts: []count{upstream("client", "outbound|7000||sniffed-http.mesh.svc.cluster.local", requests, perCell),
			inbound(7000, requests, perCell)},
	}, {
		name: "sniffed TCP", answers: servers,
		new: from("client", func(d dial) send { return overTCP(d, "10.96.0.12:7100") }),
		counts: []count{upstream("client", "outbound|7100||sniffed-tcp.mesh.svc.cluster.local", connections, perCell),
			inbound(7100, connections, perCell)},
	}, {
		name: "headless TCP", answers: servers,
		new: from("client", func(d dial) send { return inTurn(overTCP(d, "10.10.0.21:9100"), overTCP(d, "10.10.0.22:9100")) }),
		counts: []count{
			upstream("client", "outbound|9100||headless.mesh.svc.cluster.local", connections, perCell), inbound(9100, connections, perCell),
		},
	}, {
		name: "no sidecar behind", answers: []string{"plain"},
		new:    from("client", func(d dial) send { return overHTTP(d, "HTTP/1.1", "10.96.0.13:80", "plain") }),
		counts: []count{upstream("client", "outbound|80||plain.mesh.svc.cluster.local", requests, perCell)},
	}, {
		name: "passthrough HTTP", answers: []string{"unknown"},
		new:    from("client", func(d dial) send { return overHTTP(d, "HTTP/1.1", "10.10.99.1:80", "unknown.example.com") }),
		counts: []count{upstream("client", "PassthroughCluster", requests, perCell)},
	}, {
		name: "passthrough TCP", answers: []string{"unknown"},
		new:    from("client", func(d dial) send { return overTCP(d, "10.10.99.1:9999") }),
		counts: []count{upstream("client", "PassthroughCluster", connections, perCell)},
	}, {
		name: "REGISTRY_ONLY", answers: append([]string{"refused"}, servers...),
		new: from("closed", func(d dial) send {
			return inTurn(overHTTP(d, "HTTP/1.1", "10.96.0.10:80", "echo.mesh"), overTCP(d, "10.96.0.10:9000"),
				refused(overHTTP(d, "HTTP/1.1", "10.10.99.1:80", "unknown.example.com")), refused(overTCP(d, "10.10.99.1:9999")))
		}),
		counts: []count{
			upstream("closed", "outbound|80||echo.mesh.svc.cluster.local", requests, perCell/4),
			upstream("closed", "outbound|9000||echo.mesh.svc.cluster.local", connections, perCell/4),
		},
	}, {
		name: "not redirected", answers: servers,
		new: from("unredirected", func(d dial) send { return overHTTP(d, "HTTP/1.1", "127.0.0.1:80", "echo") }),
		counts: []count{upstream("unredirected", "outbound|80||echo.mesh.svc.cluster.local", requests, perCell),
			inbound(8080, requests, perCell)},
	}, {
		name: "gateway", answers: servers,
		new: func(*mesh) (send, func() error, error) {
			return overHTTP(new(net.Dialer).DialContext, "HTTP/1.1", ingress, ingressHost), func() error { return nil }, nil
		},
		counts: []count{upstream("ingress", "outbound|80||echo.mesh.svc.cluster.local", requests, perCell), inbound(8080, requests, perCell)},
	},
}

// Where the gateway of testdata/mesh answers, and for whom.
const (
	ingress     = "10.10.0.2:8080"
	ingressHost = "echo.example.com"
)

// fill fills the cell of a protocol.
func (p protocol) fill(t *testing.T, m *mesh) cell {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one, closeIt, err := p.new(m)
	if err != nil {
		t.Error(err)
		return cell{}
	}
	defer closeIt()
	before := p.read(t, m)
	c := cell{}
	answered := map[string]int{}
	for range perCell {
		c.Requests++
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		name, err := one(ctx)
		cancel()
		if err != nil {
			t.Errorf("request %d: %v", c.Requests, err)
			if c.Requests-c.Served > 3 {
				break
			}
			continue
		}
		c.Served++
		answered[name]++
	}
	if got := slices.Sorted(maps.Keys(answered)); !slices.Equal(got, slices.Sorted(slices.Values(p.answers))) {
		t.Errorf("%v answered, want all of %v", answered, p.answers)
	}
	after := p.read(t, m)
	for i, n := range p.counts {
		if grown := after[i] - before[i]; grown < n.atLeast {
			t.Errorf("%s of %v grew by %d, want %d: requests took another way", n.stat, n.pods, grown, n.atLeast)
		}
	}
	m.healthy(t)
	if t.Failed() {
		// A cell counts as served only if everything about it is right.
		c.Served = 0
	}
	return c
}

func (p protocol) read(t *testing.T, m *mesh) []int {
	t.Helper()
	sums := make([]int, len(p.counts))
	for i, c := range p.counts {
		for _, pod := range c.pods {
			stats, err := m.World.Pod(pod).Proxy.Stats(t.Context(), c.stat)
			if err != nil {
				t.Error(err)
			}
			for _, n := range stats {
				sums[i] += n
			}
		}
	}
	return sums
}
