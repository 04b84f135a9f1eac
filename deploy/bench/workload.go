package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// workload is one thing that is measured.
type workload interface {
	name() string
	// about describes in a sentence or two what is done and measured.
	about(o options) string
	// rows returns the rows of the figures that run returns, in the order of the table.
	rows() []row
	needs() needs
	run(ctx context.Context, s *session) (figures, error)
}

// needs say what a workload runs on.
type needs struct {
	// fleet is a server with a connected fleet of proxies. Without it the workload gets a fresh server, which may not be
	// ready yet.
	fleet bool
	// connects reports whether the workload connects the fleet itself.
	connects bool
	// delta restricts the workload to that protocol. Workloads without a fleet have no other.
	delta bool
	// injection reports whether the server injects proxies.
	injection bool
	// scene names objects that the world has while the workload runs.
	scene scene
	// limit reports whether the limit can run the workload. It knows only the objects of one sidecar.
	limit bool
	// length is how long the workload makes changes, if it makes any.
	length time.Duration
}

// usualLength is the length of workloads that set none.
const usualLength = 20 * time.Second

// workloads returns all workloads in the order in which they run on one server. The last one leaves streams that no
// client reads.
func workloads() []workload {
	return []workload{
		coldStart{}, connects{}, reconnects{}, endpointFlips{}, serviceComesAndGoes{}, virtualServiceChanges{}, gatewayRoutes{}, scoped{},
		noisyNeighbour{}, idleProxies{}, certificates{}, slowReaders{}, reviews{}, reviews{injection: true},
		withPolicies{connects{}, "a"}, withPolicies{endpointFlips{}, "b"}, policyChanges{}, withPolicies{idleProxies{}, "c"},
		inRichMesh{connects{}, "a"}, inRichMesh{endpointFlips{}, "b"}, inRichMesh{virtualServiceChanges{}, "c"}, richChanges{},
		gatewayRoutes{gatewayAPI: true}, restarts{},
	}
}

// figures are the results of one run, by the name of the row.
type figures map[string]float64

// row is a line of a table.
type row struct {
	name, unit string
	// informative rows have no ratio, because neither a higher nor a lower figure is better.
	informative bool
	// The goals by mode: the ratio of istiod's figure to ours, and the most that our figure may be.
	ratio  map[mode]float64
	atMost *float64
}

// mode is the protocol that proxies speak.
type mode string

const (
	delta           mode = "delta"
	stateOfTheWorld mode = "sotw"
)

func both(ratio float64) map[mode]float64 {
	return map[mode]float64{delta: ratio, stateOfTheWorld: ratio}
}

// session is one run of one server.
type session struct {
	*server
	options
	mode    mode
	proxies int
	cpu     cores
	world   world.World
	clients *world.Clients
	fleet   *load.Fleet // nil without a fleet
	// connect starts a fleet that stays for the session. By default its proxies are sidecars of the first pods, in the
	// mode of the session.
	connect func(load.Options) (*load.Fleet, error)
}

// fill connects the fleet if needed, and waits until each proxy has everything.
func (s *session) fill(ctx context.Context) (err error) {
	if s.fleet != nil {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	if s.fleet, err = s.connect(load.Options{Proxies: s.proxies}); err != nil {
		return err
	}
	return s.fleet.Wait(ctx)
}

func pick(names []string) ([]workload, error) {
	var out []workload
	for _, w := range workloads() {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(strings.TrimSpace(n), w.name()) }) {
			out = append(out, w)
		}
	}
	if len(out) != len(names) {
		var all []string
		for _, w := range workloads() {
			all = append(all, w.name())
		}
		return nil, fmt.Errorf("workloads are %s, each named once, not %s", strings.Join(all, ", "), strings.Join(names, ","))
	}
	return out, nil
}

func pickModes(names []string) ([]mode, error) {
	var out []mode
	for _, n := range names {
		m := mode(strings.TrimSpace(n))
		if m != delta && m != stateOfTheWorld {
			return nil, fmt.Errorf("modes are %s and %s, not %s", delta, stateOfTheWorld, n)
		}
		out = append(out, m)
	}
	return out, nil
}

// identity returns the identities of proxies, starting with the first: sidecars of the first pods of all services, then
// of their second pods, and so on.
func identity(w world.World, first int) func(i int) load.Identity {
	return func(i int) load.Identity {
		i += first
		s, p := i%w.Services, i/w.Services%w.Pods
		return load.Identity{
			Pod: world.PodName(s, p), Namespace: w.Namespace(s), IP: world.PodIP(s, p), Workload: world.Name(s), ServiceAccount: world.Name(s),
			Labels: world.PodLabels(s), Node: world.NodeName(s, p), Region: "r1", Zone: world.Zone((s + p) % world.Nodes),
		}
	}
}
