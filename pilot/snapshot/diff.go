package snapshot

import (
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Diff lists the changes from the previous Snapshot and their causes, so that a push is limited to them.
type Diff struct {
	// Full is true if more than endpoints and workloads changed.
	Full bool

	// Objects is true if an object changed that no translation reads. It affects only clients that are sent objects.
	Objects bool

	// Secrets is true if an object changed that only affects proxies that name it, such as a credential.
	Secrets bool

	// Endpoints are the services whose endpoints changed.
	Endpoints []registry.ServiceKey

	// Workloads are the workloads whose labels, addresses or identity changed, which may affect their proxies.
	Workloads []registry.WorkloadKey

	// Addresses are the addresses at which endpoints alone started or stopped serving a port, which may affect the
	// proxies there.
	Addresses []ClusterAddress

	// Global is true if the mesh configuration or the networks changed.
	Global bool

	// Roots is true if the roots that proxies trust changed.
	Roots bool

	// Facts are the facts that were added, changed or removed, sorted.
	Facts []ConfigChange

	// Services, Configs and OldEndpoints are the changed services, the objects with a change that translations read,
	// and the previous endpoints of each service in Endpoints. They are not sorted.
	Services     []ServiceChange
	Configs      []ConfigChange
	OldEndpoints []ServiceEndpoints

	unsentWorkload bool // a workload has a change that no proxy is sent

	// Triggers counts the changes by reason, as in the metric pilot_push_triggers: endpoint, headlessendpoint, config,
	// service, proxy, global, networks, secret.
	Triggers map[string]int

	// Causes names changed objects, such as "VirtualService a/web". There are at most MaxCauses.
	Causes []string

	// Received is the arrival time of the first change, or zero if there is none.
	Received time.Time
}

// OnlySecrets reports whether all changed objects only affect proxies that name them.
func (d *Diff) OnlySecrets() bool {
	return d.Secrets && !d.Full && !d.Objects && !d.unsentWorkload && len(d.Endpoints)+len(d.Workloads)+len(d.Addresses) == 0
}

// ServiceChange is a service before and after a change. Nil means that it does not exist.
type ServiceChange struct{ Old, New *registry.Service }

// ConfigChange is an object before and after a change. Nil means that it does not exist.
type ConfigChange struct{ Old, New *kinds.Object }

// ServiceEndpoints are the endpoints of one service.
type ServiceEndpoints struct {
	registry.ServiceKey
	*Endpoints
}

// MaxCauses bounds the causes in a Diff.
const MaxCauses = 16
