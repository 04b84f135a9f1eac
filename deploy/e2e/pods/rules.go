package pods

import (
	"fmt"

	"github.com/istiod-lite/istiod-lite/pilot/agent/capture"
)

// The sidecar and the rules use the same values.
const (
	// Mark is the SO_MARK of the sidecar's own connections.
	Mark = 1337
	// OutboundPort and InboundPort are the sidecar's ports for redirected connections.
	OutboundPort = 15001
	InboundPort  = 15006
	// AdminPort is the sidecar's admin port. It and the ports for probes and metrics are not redirected.
	AdminPort = 15000
)

// redirect writes the rules into the namespace of the calling thread. They are those of an injected pod, except that a
// mark identifies the sidecar, because all processes here have one user. Outbound ports in direct are not redirected.
func redirect(direct []uint16) error {
	err := capture.Apply(capture.Config{
		OutboundPort: OutboundPort, InboundPort: InboundPort, TunnelPort: 15008,
		Mode: capture.Redirect, Marks: []uint32{Mark},
		AllInbound: true, InboundExclude: []uint16{AdminPort, 15020, 15021, 15090},
		AllOutbound: true, OutboundExclude: direct,
		// These are only needed to remove earlier rules.
		TProxyMark: 1337, TProxyTable: 133,
	})
	if err != nil {
		return fmt.Errorf("redirect the traffic of a pod: %w", err)
	}
	return nil
}

// RedirectBut redirects the pod's TCP traffic as Redirect of Spec does, except outbound connections to some ports. An
// agent without a mark connects to its control plane there.
func (p *Pod) RedirectBut(ports ...uint16) error {
	return p.ns.within(p.home, func() error { return redirect(ports) })
}
