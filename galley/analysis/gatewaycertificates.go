package analysis

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// shownCertificate is a certificate that the servers of Gateways show on a port of their workloads.
type shownCertificate struct {
	workloads selectionKey
	content   string
	port      uint32
}

// gatewayCertificates reports Gateways that show one certificate for different hosts on one port: browsers reuse an
// HTTP/2 connection for all hosts of a certificate, and the hosts of the other Gateway answer 404.
func (a *analysis) gatewayCertificates() {
	type server struct {
		gateway *kinds.Object
		hosts   []string
		name    string // of the certificate
	}
	first := map[shownCertificate]server{}
	for _, o := range a.of(kinds.Gateway) {
		workloads, selected := a.gatewaySelection(o)
		for i, s := range o.Spec.(*networkingv1.Gateway).Servers {
			reported := false
			for _, c := range a.certificatesOf(selected.namespaces, s.GetTls(), indexed("spec.servers", i)+".tls") {
				key := shownCertificate{workloads, cmp.Or(c.content, c.name), s.GetPort().GetNumber()}
				other := first[key]
				if other.gateway == nil {
					first[key] = server{o, s.Hosts, c.name}
					continue
				}
				if reported || other.gateway == o || slices.Equal(other.hosts, s.Hosts) {
					continue
				}
				reported = true
				what := "the certificate " + other.name
				if other.name != c.name {
					what = "the same certificate, as " + other.name + ","
				}
				a.report(o, diag.Warning, codeSharedCertificate, c.field, "merge the two, with one server for all hosts",
					"%s shows %s for other hosts on port %d: browsers that use one connection for both get 404",
					other.gateway, what, key.port)
			}
		}
	}
}

// serverCertificate is a certificate of a server of a Gateway.
type serverCertificate struct {
	name, field string
	content     string // certificate chain in PEM, or what names it; empty if that is the name
}

// certificatesOf returns the certificates that a server with some TLS settings shows. namespaces are the namespaces of
// the Gateway's workloads, which have its Secrets.
func (a *analysis) certificatesOf(
	namespaces []string, tls *networkingv1alpha3.ServerTLSSettings, field string,
) (list []serverCertificate) {
	if file := tls.GetServerCertificate(); file != "" {
		list = append(list, serverCertificate{name: file, field: field + ".serverCertificate"})
	}
	for _, r := range credentials.OfServer(tls, field) {
		if !r.Own {
			continue
		}
		if len(namespaces) == 0 {
			for _, name := range r.Names() {
				list = append(list, serverCertificate{name: name, field: r.Field, content: r.Resource})
			}
		}
		for _, ns := range namespaces {
			if secret, ok := names.ParseSecret(r.Resource, ns); ok {
				list = append(list, serverCertificate{secret.Namespace + "/" + secret.Name, r.Field, a.certificate(secret)})
			}
		}
	}
	return list
}

// certificate returns the certificate chain of a Secret, or "" if it has none or is not there.
func (a *analysis) certificate(secret names.Secret) string {
	if a.secrets == nil {
		a.secrets = map[kinds.Key]*corev1.Secret{}
		for _, o := range a.of(kinds.Secret) {
			a.secrets[o.Key], _ = o.Spec.(*corev1.Secret)
		}
	}
	s := a.secrets[kinds.Key{Kind: kinds.Secret, Namespace: secret.Namespace, Name: secret.Name}]
	if s == nil {
		return ""
	}
	return strings.TrimSpace(string(credentials.ChainOf(s)))
}
