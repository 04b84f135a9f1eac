package analysis

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// address is an IP address of a Pod's network. Networks of different clusters may have the same addresses.
type address struct{ cluster, ip string }

// podAddresses reports Pods with the address of another Pod. It skips Pods on the host network, which share their
// node's address, and running clusters, where addresses are reused.
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
				a.report(w.object, diag.Warning, codeAddress, "status.podIP",
					"give each Pod an address of its own, or set spec.hostNetwork where they share their node's",
					"%s has the address %s too: requests to one may reach the other", other, ip)
				break
			}
		}
	}
}
