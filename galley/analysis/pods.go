package analysis

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// address is an IP address of a Pod's network: networks of different clusters may hold the same.
type address struct{ cluster, ip string }

// podAddresses reports Pods with an address that another has. Pods that share their node's have the same by right, and
// in a running cluster addresses go from one Pod to the next.
func (a *analysis) podAddresses() {
	if !a.options.Whole && !a.options.Still {
		return
	}
	first := map[address]*kinds.Object{}
	for _, w := range a.pods {
		if w.pod.HostNetwork {
			continue
		}
		for _, ip := range w.pod.Addresses {
			key := address{w.object.Cluster, ip}
			if other := first[key]; other == nil {
				first[key] = w.object
			} else if other != w.object {
				a.report(w.object, diag.Warning, codeAddress, "status.podIP", "give each Pod an address of its own, or set spec.hostNetwork where they share their node's",
					"%s has the address %s too: requests to one may reach the other", other, ip)
				break
			}
		}
	}
}
