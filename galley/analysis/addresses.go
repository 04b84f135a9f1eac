package analysis

import (
	"cmp"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// entryAddresses reports ServiceEntries with a TCP port and no address: their listener takes all traffic to the port,
// whatever its destination.
func (a *analysis) entryAddresses() {
	if a.allocates() {
		return
	}
	first := map[uint32]*kinds.Object{} // entries without addresses, by port
	for _, o := range a.of(kinds.ServiceEntry) {
		spec := o.Spec.(*networkingv1.ServiceEntry)
		if len(spec.Addresses) > 0 || o.Annotations[kinds.AnnotationAddresses] != "" {
			continue
		}
		for i, p := range spec.Ports {
			if protocol := strings.ToUpper(p.Protocol); protocol == "" || protocol == "TCP" {
				byDefault := a.mesh.GetDefaultServiceExportTo()
				if wins := first[p.Number]; wins != nil &&
					together(wins, a.entryExports(wins), o, a.entryExports(o), byDefault) {
					a.report(o, diag.Warning, codeAddresses, indexed("spec.ports", i)+".protocol", "add addresses to both",
						"neither the entry nor %s has addresses, port %d is TCP for both, and %s comes first (%s): "+
							"connections to the port lead to its host %s",
						wins, p.Number, wins, precedence(wins, o), listed(wins.Spec.(*networkingv1.ServiceEntry).Hosts))
					break
				}
				first[p.Number] = cmp.Or(first[p.Number], o)
				a.report(o, diag.Warning, codeAddresses, indexed("spec.ports", i)+".protocol",
					"add addresses, or name another protocol, such as TLS",
					"the entry has no addresses, and port %d is TCP: its traffic cannot be told from that to other hosts on the port", p.Number)
				break
			}
		}
	}
}

// allocates reports whether sidecars tell such entries apart, by addresses that their DNS gives out.
func (a *analysis) allocates() bool {
	metadata := a.mesh.GetDefaultConfig().GetProxyMetadata()
	return metadata["ISTIO_META_DNS_CAPTURE"] == "true" && metadata["ISTIO_META_DNS_AUTO_ALLOCATE"] == "true"
}
