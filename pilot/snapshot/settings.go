package snapshot

import "github.com/istiod-lite/istiod-lite/api/node"

// Settings are the settings of the control plane that translations read. They are the same in all Snapshots of a
// server. The settings in a mesh configuration are apart, because they change.
type Settings struct {
	HTTP3 bool // gateways serve HTTP/3 on UDP ports of their Services
	// ScopedGateways limits each Gateway to the workloads of its own namespace, see kinds.GatewayNamespace.
	ScopedGateways bool
	// PersistentSessions lets labels of services ask for sessions that stay at one endpoint.
	PersistentSessions bool
	// HeadlessChains makes all addresses of a headless service share one listener for each TCP port. Without it, each
	// address has a listener of its own.
	HeadlessChains bool
	Tuning         node.Tuning // of the listeners of all proxies
}
