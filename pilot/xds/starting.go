package xds

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// arrived logs the connection of a client, and metadata without effect.
func (c *conn) arrived() {
	c.logArrival("connected", "delta", c.delta)
	for _, n := range c.proxy.Notices() {
		if c.server.noticed.first(c.proxy.ID + "\x00" + n.Key + "\x00" + n.Value) {
			c.server.warnings.log(
				c.server.o.Logger.Warn, c.warnings, "an entry of the proxy's metadata has no effect", "conn", c.id, "entry", n.Key, "value",
				n.Value, "fix", n.Fix,
			)
		}
	}
}

// left logs the end of a stream and the reason.
func (c *conn) left(err error) {
	reason := "the client closed the connection"
	if err != nil {
		reason = status.Convert(err).Message()
	}
	c.logArrival("disconnected", "dur", time.Since(c.connected).Round(time.Millisecond), "reason", reason)
}

func (c *conn) logArrival(event string, more ...any) {
	args := []any{"conn", c.id, "name", c.proxy.ID, "address", c.remote, "type", string(c.proxy.Type), "version", c.proxy.Release()}
	c.server.arrivals.log(c.server.o.Logger.Info, nil, c.profile.name+" "+event, append(args, more...)...)
}

// warmTime is how long the clusters of an Envoy may take to warm before the server looks for a reason. Envoy requests
// listeners when they are warm. Clusters that resolve names or check health may take seconds.
const warmTime = 5 * time.Second

// starting reports whether the client is an Envoy that has not requested listeners yet.
func (c *conn) starting() bool {
	return c.profile.warms && c.session.StatusOf(envoy.ListenerType) == nil
}

// warming reports whether the client is an Envoy that has its clusters and has not requested listeners yet.
func (c *conn) warming() bool {
	clusters := c.session.StatusOf(envoy.ClusterType)
	return c.starting() && clusters != nil && clusters.Acked != ""
}

// wantsCertificates returns the name of one of the client's clusters that wants certificates, or "".
func (c *conn) wantsCertificates() string {
	if r := c.session.Find(envoy.ClusterType, (*envoy.Resource).WantsCertificates); r != nil {
		return r.Name
	}
	return ""
}

// waits returns what an Envoy that starts waits for, or why a proxy is refused secrets, or "".
func (c *conn) waits() string {
	clusters := c.session.StatusOf(envoy.ClusterType)
	switch {
	case c.refused != "":
		return "it does not get the secret " + c.refused + ", because its service account may not list secrets: " + c.listAdvice()
	case !c.starting():
		return ""
	case clusters == nil:
		return "it has not asked for clusters yet"
	case clusters.Acked == "":
		return "it has not acknowledged its clusters yet"
	}
	if name := c.wantsCertificates(); name != "" {
		return fmt.Sprintf(
			"it has its clusters and has not asked for listeners yet: "+
				"cluster %s is warming until the cluster %s of the bootstrap has certificates for it",
			name, names.SDSCluster,
		)
	}
	return "it has its clusters and has not asked for listeners yet: they are warming"
}

// markWaiting adds an Envoy that waits for certificates to the findings, and logs it once.
func (c *conn) markWaiting(log *slog.Logger) {
	name := c.wantsCertificates()
	if name == "" {
		return
	}
	s := c.server
	s.mu.Lock()
	s.withoutCertificates[c] = name
	s.mu.Unlock()
	if !c.inWaitList {
		c.inWaitList = true
		s.warnings.log(log.Warn, c.warnings, "finding", "finding", noCertificates([]string{c.proxy.ID}, c.proxy, name).String())
	}
}

// unmarkWaiting removes the Envoy from the findings.
func (c *conn) unmarkWaiting() {
	if !c.inWaitList {
		return
	}
	c.inWaitList = false
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.withoutCertificates, c)
}

// Findings returns a finding about the connected proxies that cannot start without certificates.
func (s *Server) Findings() []diag.Diagnostic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.withoutCertificates) == 0 {
		return nil
	}
	byName := make(map[string]*conn, len(s.withoutCertificates))
	for c := range s.withoutCertificates {
		byName[c.proxy.ID] = c
	}
	proxies := slices.Sorted(maps.Keys(byName))
	first := byName[proxies[0]]
	return []diag.Diagnostic{noCertificates(proxies, first.proxy, s.withoutCertificates[first])}
}

// noCertificates returns the finding about proxies that wait for certificates. The first has a cluster that wants them.
func noCertificates(proxies []string, first *node.Proxy, cluster string) diag.Diagnostic {
	object := "proxy " + proxies[0]
	if more := len(proxies) - 1; more > 0 {
		object += fmt.Sprintf(" and %d more", more)
	}
	fix := "switch mTLS off with a PeerAuthentication of mode DISABLE in the root namespace, " +
		"or run an SDS server and name it in the bootstrap (pilot-discovery bootstrap --sds)"
	if first.ProxyConfig { // an agent runs it
		fix = "read the log of its agent, which says why it has none; if SPIRE provides them, " +
			"its server needs an entry for the service account " + first.Namespace + "/" + cmp.Or(first.Account, "default")
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "NoCertificates", Object: object,
		Message: fmt.Sprintf(
			"it has its clusters and does not ask for listeners: "+
				"%s uses mTLS, and Envoy waits for certificates from the cluster %s of its bootstrap",
			cluster, names.SDSCluster,
		),
		Fix: fix,
	}
}
