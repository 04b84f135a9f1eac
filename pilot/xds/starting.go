package xds

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// arrived logs that a client has connected.
func (c *conn) arrived() {
	what := "proxy connected"
	if OfObjects(c.proxy) {
		what = "reader of configuration connected"
	}
	log := c.server.logger
	c.server.arrivals.log(log.Info, nil, what, "conn", c.id, "name", c.proxy.ID, "address", c.remote, "type", string(c.proxy.Type), "version", c.proxy.Release(), "delta", c.delta)
}

// left logs that a client has gone, and why.
func (c *conn) left(err error) {
	what, reason := "proxy disconnected", "the proxy closed the connection"
	if OfObjects(c.proxy) {
		what, reason = "reader of configuration disconnected", "the reader closed the connection"
	}
	if err != nil {
		reason = status.Convert(err).Message()
	}
	log := c.server.logger
	c.server.arrivals.log(log.Info, nil, what, "conn", c.id, "name", c.proxy.ID, "address", c.remote, "type", string(c.proxy.Type), "version", c.proxy.Release(),
		"dur", time.Since(c.connected).Round(time.Millisecond), "reason", reason)
}

// patience is how long an Envoy may have its clusters and not ask for listeners before that is remarkable. It asks when all clusters are warm: those that look up names
// or check health may take seconds.
const patience = 5 * time.Second

// warming reports whether the client is an Envoy that has its clusters and has not asked for listeners yet.
func (c *conn) warming() bool {
	clusters := c.session.find(envoy.ClusterType)
	return c.proxy.Envoy != [3]uint32{} && !c.session.ofObjects() && clusters != nil && clusters.status.Acked != "" && c.session.find(envoy.ListenerType) == nil
}

// wanting returns the name of a cluster that the client has and that wants certificates, or nothing.
func (c *conn) wanting() string {
	for _, r := range c.session.find(envoy.ClusterType).resources() {
		if r.WantsCertificates() {
			return r.Name
		}
	}
	return ""
}

// waits says what an Envoy that starts waits for.
func (c *conn) waits() string {
	clusters := c.session.find(envoy.ClusterType)
	switch {
	case c.proxy.Envoy == [3]uint32{} || c.session.ofObjects() || c.session.find(envoy.ListenerType) != nil:
		return ""
	case clusters == nil:
		return "it has not asked for clusters yet"
	case clusters.status.Acked == "":
		return "it has not acknowledged its clusters yet"
	}
	if name := c.wanting(); name != "" {
		return fmt.Sprintf("it has its clusters and has not asked for listeners yet: cluster %s is warming until %s, a cluster of Envoy's bootstrap, has certificates for it", name, names.SDSCluster)
	}
	return "it has its clusters and has not asked for listeners yet: they are warming"
}

// stalls takes note of an Envoy that waits for certificates, and says so once.
func (c *conn) stalls(log *slog.Logger) {
	name := c.wanting()
	if name == "" {
		return
	}
	s := c.server
	s.mu.Lock()
	s.waiting[c] = name
	s.mu.Unlock()
	if !c.stalled {
		c.stalled = true
		s.complaints.log(log.Warn, &c.complaints, "finding", "finding", noCertificates([]string{c.proxy.ID}, name).String())
	}
}

// goesOn takes back what stalls noted.
func (c *conn) goesOn() {
	if !c.stalled {
		return
	}
	c.stalled = false
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c)
}

// Findings returns what is wrong with the mesh as its proxies show it: that some cannot start for want of certificates.
func (s *Server) Findings() []diag.Diagnostic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	byName := make(map[string]string, len(s.waiting))
	for c, cluster := range s.waiting {
		byName[c.proxy.ID] = cluster
	}
	proxies := slices.Sorted(maps.Keys(byName))
	return []diag.Diagnostic{noCertificates(proxies, byName[proxies[0]])}
}

func noCertificates(proxies []string, cluster string) diag.Diagnostic {
	object := "proxy " + proxies[0]
	if more := len(proxies) - 1; more > 0 {
		object += fmt.Sprintf(" and %d more", more)
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "NoCertificates", Object: object,
		Message: fmt.Sprintf("it has its clusters and does not ask for listeners: %s uses mTLS, and Envoy waits for a certificate from the cluster %s of its bootstrap", cluster, names.SDSCluster),
		Fix:     "switch mTLS off by a PeerAuthentication of mode DISABLE in the root namespace, or run an SDS server and name it in the bootstrap (pilot-discovery bootstrap --sds)",
	}
}
