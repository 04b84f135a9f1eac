package mtls

import (
	"slices"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Mode is which connections a port accepts.
type Mode int

// Modes.
const (
	Permissive Mode = iota // mTLS and plaintext
	Strict                 // mTLS alone
	Disable                // plaintext alone
)

// ModeOf returns the mode of a workload's port. Port 0 stands for all ports without a mode of their own. Policies are
// ordered from the mesh's to the workload's, as cohort.PeerAuthentications returns them. A policy that leaves the mode
// unset inherits it from the one before.
func ModeOf(policies frozen.List[*kinds.Object], port uint32) Mode {
	mode := Permissive
	for o := range policies.All {
		spec := o.Spec.(*securityv1.PeerAuthentication)
		mode = inherit(mode, spec.Mtls)
		if port != 0 && selective(spec) {
			mode = inherit(mode, spec.PortLevelMtls[port])
		}
	}
	return mode
}

// Ports returns the ports that have a mode of their own, ascending.
func Ports(policies frozen.List[*kinds.Object]) []uint32 {
	var ports []uint32
	for o := range policies.All {
		if spec := o.Spec.(*securityv1.PeerAuthentication); selective(spec) {
			for p := range spec.PortLevelMtls {
				ports = append(ports, p)
			}
		}
	}
	slices.Sort(ports)
	return ports
}

func selective(spec *securityv1.PeerAuthentication) bool {
	return len(spec.GetSelector().GetMatchLabels()) > 0
}

func inherit(mode Mode, m *securityv1.PeerAuthentication_MutualTLS) Mode {
	switch m.GetMode() {
	case securityv1.PeerAuthentication_MutualTLS_STRICT:
		return Strict
	case securityv1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return Permissive
	case securityv1.PeerAuthentication_MutualTLS_DISABLE:
		return Disable
	}
	return mode
}

// AcceptsMTLS reports whether an endpoint is to be called by mTLS: it has a sidecar, and no policy turns mTLS off for
// its port.
func AcceptsMTLS(e *registry.Endpoint, policies frozen.List[*kinds.Object]) bool {
	return e.TLSMode != "" && ModeOf(policies, e.Port) != Disable
}
