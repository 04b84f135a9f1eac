package bootstrap

import "github.com/istiod-lite/istiod-lite/pilot/components"

// parts makes the components that start once the server serves, in the order of starting. A part that is not configured
// is nil.
var parts = []func(*Server) (components.Component, error){
	(*Server).newWebhooks,
	(*Server).newRemotes,
	(*Server).newStatuses,
	(*Server).newConditions,
	(*Server).newDerivedStatuses,
	(*Server).newGateways,
	(*Server).newUntaint,
	(*Server).newExports,
}
