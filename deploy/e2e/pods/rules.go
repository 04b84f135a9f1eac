package pods

import (
	"fmt"

	"github.com/istiod-lite/istiod-lite/pilot/agent/capture"
)

// What a sidecar and the rules around it agree on.
const (
	// Mark is the SO_MARK by which the sidecar's own connections are known.
	Mark = 1337
	// OutboundPort and InboundPort are where a sidecar accepts what the rules redirect.
	OutboundPort = 15001
	InboundPort  = 15006
	// AdminPort is the sidecar's admin port; it and the ports for probes and metrics are reached directly.
	AdminPort = 15000
)

// redirect writes the rules into the namespace of the calling thread. They are those of an injected pod, but that the
// sidecar is known by a mark: here all processes have one user.
// Outbound ports named direct are left alone.
func redirect(direct []uint16) error {
	err := capture.Apply(capture.Config{
		OutboundPort: OutboundPort, InboundPort: InboundPort, TunnelPort: 15008,
		Mode: capture.Redirect, Marks: []uint32{Mark},
		AllInbound: true, InboundExclude: []uint16{AdminPort, 15020, 15021, 15090},
		AllOutbound: true, OutboundExclude: direct,
		// Only to remove what an earlier set of rules had.
		TProxyMark: 1337, TProxyTable: 133,
	})
	if err != nil {
		return fmt.Errorf("redirect the traffic of a pod: %w", err)
	}
	return nil
}

// RedirectBut hands the pod's TCP traffic to the ports of a sidecar, as Redirect of Spec does, but for what goes out to
// some ports: an agent that has no mark calls its control plane there.
func (p *Pod) RedirectBut(ports ...uint16) error {
	return p.ns.within(p.home, func() error { return redirect(ports) })
}
