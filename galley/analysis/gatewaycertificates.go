package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// gatewayCertificates reports Gateways that show one certificate for different hosts on one port: browsers reuse an
// HTTP/2 connection for all hosts of a certificate, and the hosts of the other Gateway answer 404.
func (a *analysis) gatewayCertificates() {
	type use struct {
		selector, credential string
		port                 uint32
	}
	first := map[use]*kinds.Object{}
	hosts := map[use][]string{}
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		for i, s := range spec.Servers {
			name := s.GetTls().GetCredentialName()
			if name == "" {
				continue
			}
			key := use{written(spec.Selector), o.Namespace + "/" + name, s.GetPort().GetNumber()}
			if first[key] == nil {
				first[key], hosts[key] = o, s.Hosts
			} else if first[key] != o && !slices.Equal(hosts[key], s.Hosts) {
				a.report(o, diag.Warning, codeSharedCertificate,
					indexed("spec.servers", i)+".tls.credentialName", "merge the two, with one server for all hosts",
					"%s shows the certificate %s for other hosts on port %d: browsers that use one connection for both get 404",
					first[key], key.credential, key.port)
			}
		}
	}
}
