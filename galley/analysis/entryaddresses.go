package analysis

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// entryAddresses reports ServiceEntries with a TCP port and no address: their listener takes all traffic to the port,
// whatever its destination.
func (a *analysis) entryAddresses() {
	for _, o := range a.of(kinds.ServiceEntry) {
		spec := o.Spec.(*networkingv1.ServiceEntry)
		if len(spec.Addresses) > 0 || o.Annotations[kinds.AnnotationAddresses] != "" {
			continue
		}
		for i, p := range spec.Ports {
			if protocol := strings.ToUpper(p.Protocol); protocol == "" || protocol == "TCP" {
				a.report(o, diag.Warning, codeAddresses, indexed("spec.ports", i)+".protocol", "add addresses, or name another protocol, such as TLS",
					"the entry has no addresses, and port %d is TCP: its traffic cannot be told from that to other hosts on the port", p.Number)
				break
			}
		}
	}
}
