package snapshot

import (
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Diff lists what changed between a Snapshot and the one before. It limits a push to what changed, and holds its
// causes.
type Diff struct {
	// Full: more than endpoints and workloads changed.
	Full bool

	// Objects: an object changed that no translation reads. Only clients that are sent objects are affected.
	Objects bool

	// Secrets: an object changed that reaches only the proxies that name it, such as what a Secret holds.
	Secrets bool

	// Endpoints are the services whose endpoints changed, whether or not more changed.
	Endpoints []registry.ServiceKey

	// Workloads are the workloads whose proxies, if connected, may be affected: labels, addresses or identity changed.
	Workloads []registry.WorkloadKey

	// Addresses are those whose proxies may be affected: only endpoints say that a port is served there, and they
	// changed.
	Addresses []ClusterAddress

	// Global: the mesh configuration or the networks changed.
	Global bool

	// Roots: the roots that proxies trust changed.
	Roots bool

	// Facts are the facts that came, changed or went, sorted.
	Facts []ConfigChange

	// Services, Configs and OldEndpoints are the details: the services that changed, the objects that changed in
	// something a translation reads, and the old endpoints of each of Endpoints. None is sorted.
	Services     []ServiceChange
	Configs      []ConfigChange
	OldEndpoints []ServiceEndpoints

	unsentWorkload bool // a workload changed in something that no proxy is sent

	// Triggers counts the changes by reason, as the metric pilot_push_triggers does: endpoint, headlessendpoint,
	// config, service, proxy, global, networks, secret.
	Triggers map[string]int

	// Causes names what changed, such as "VirtualService a/web". There are at most MaxCauses.
	Causes []string

	// Received is the time at which the first of the changes arrived; zero where there is none.
	Received time.Time
}

// OnlySecrets reports whether nothing else changed than objects that reach only the proxies that name them.
func (d *Diff) OnlySecrets() bool {
	return d.Secrets && !d.Full && !d.Objects && !d.unsentWorkload && len(d.Endpoints)+len(d.Workloads)+len(d.Addresses) == 0
}

// ServiceChange is one service before and after; nil where it did not or does not exist.
type ServiceChange struct{ Old, New *registry.Service }

// ConfigChange is one object before and after; nil where it did not or does not exist.
type ConfigChange struct{ Old, New *kinds.Object }

// ServiceEndpoints are the endpoints of one service.
type ServiceEndpoints struct {
	registry.ServiceKey
	*Endpoints
}

// MaxCauses is the largest number of causes in one Diff.
const MaxCauses = 16
