package snapshot

import (
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Diff says in what a Snapshot differs from the one before, so that a push can be kept to what changed and can name its cause.
type Diff struct {
	// Full: more than endpoints and workloads changed. Every cohort has to be looked at anew.
	Full bool

	// Objects: an object changed that no translation reads. It concerns only those who are sent objects.
	Objects bool

	// Endpoints are the services whose endpoints changed, whether or not Full is set.
	Endpoints []registry.ServiceKey

	// Workloads are those whose proxy, if it is connected, may have to be sent something else: its labels, addresses or identity changed.
	Workloads []registry.WorkloadKey

	// Addresses are those at which a proxy may have to be sent something else: they began or ceased to serve a port by the word of endpoints alone.
	Addresses []ClusterAddress

	// Global: the mesh configuration or the networks are others.
	Global bool

	// Services, Configs and Before say of Full what it was: the services that are others, the objects of which a translation reads something else, and for
	// each of Endpoints what was there before. In no order.
	Services     []ServiceChange
	Configs      []ConfigChange
	OldEndpoints []ServiceEndpoints

	unnoticed bool // a workload changed in what no proxy is sent

	// Triggers counts the changes by reason, as pilot_push_triggers has them: endpoint, headlessendpoint, config, service, proxy, global, networks.
	Triggers map[string]int

	// Causes names what changed, "VirtualService a/web", at most MaxCauses of them.
	Causes []string

	// Received is when the first of the changes arrived; the zero time where there is none.
	Received time.Time
}

// ServiceChange is one service as it was and as it is; nil where it was not or is not.
type ServiceChange struct{ Old, New *registry.Service }

// ConfigChange is one object as it was and as it is; nil where it was not or is not.
type ConfigChange struct{ Old, New *kinds.Object }

// ServiceEndpoints are a service's endpoints before a change.
type ServiceEndpoints struct {
	registry.ServiceKey
	*Endpoints
}

// MaxCauses bounds the list of causes of one commit.
const MaxCauses = 16
