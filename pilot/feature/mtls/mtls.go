package mtls

import (
	"slices"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature. sendRoots says that proxies are sent the roots in the mesh configuration. anyTrustDomain
// says that workloads accept peers of any trust domain that their roots prove.
func New(sendRoots, anyTrustDomain bool) *feature.Feature {
	return &feature.Feature{
		Name:            "mtls",
		Kinds:           []*kinds.Kind{kinds.PeerAuthentication},
		Part:            feature.InboundPart,
		Select:          selectPolicies,
		UnsupportedMesh: unsupportedMesh(sendRoots),
		Hooks: feature.Hooks{
			FiltersReadOf: announceReadsOf, HTTPFilters: announce,
			Cluster:   announced,
			Transport: transport{anyTrustDomain},
		},
	}
}

func spec(o *kinds.Object) *securityv1.PeerAuthentication {
	return o.Spec.(*securityv1.PeerAuthentication)
}

// transport secures the connections between the proxies of the mesh.
type transport struct{ anyTrustDomain bool }

// Mode implements feature.Transport. The policy of the mesh is applied first and the workload's last. A policy that
// leaves the mode unset inherits the previous one.
func (transport) Mode(s feature.Selection, port uint32) feature.Mode {
	m := feature.Permissive
	for o := range s.Objects.All {
		m = inherit(m, spec(o).Mtls)
		if port != 0 && selective(o) {
			m = inherit(m, spec(o).PortLevelMtls[port])
		}
	}
	return m
}

// Ports implements feature.Transport.
func (transport) Ports(s feature.Selection) []uint32 {
	var list []uint32
	for o := range s.Objects.All {
		if selective(o) {
			for p := range spec(o).PortLevelMtls {
				list = append(list, p)
			}
		}
	}
	slices.Sort(list)
	return list
}

func inherit(m feature.Mode, by *securityv1.PeerAuthentication_MutualTLS) feature.Mode {
	switch by.GetMode() {
	case securityv1.PeerAuthentication_MutualTLS_STRICT:
		return feature.Strict
	case securityv1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return feature.Permissive
	case securityv1.PeerAuthentication_MutualTLS_DISABLE:
		return feature.Disable
	}
	return m
}
