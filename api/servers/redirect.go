package servers

import networkingv1alpha3 "istio.io/api/networking/v1alpha3"

// Repeats reports whether a redirect of a request at a server of a use and port leads to the URL that the client
// called. schemePort says that a redirect to a scheme without a port leads to the scheme's well-known port.
func Repeats(r *networkingv1alpha3.HTTPRedirect, use Use, port uint32, schemePort bool) bool {
	scheme, wellKnown := "http", uint32(80)
	if use.TLS() {
		scheme, wellKnown = "https", 443
	}
	if r == nil || r.Uri != "" || r.PrefixRewrite != "" || r.Authority != "" || r.Scheme != "" && r.Scheme != scheme {
		return false
	}
	if to, is := r.RedirectPort.(*networkingv1alpha3.HTTPRedirect_Port); is {
		return to.Port == port
	}
	return r.Scheme == "" || !schemePort || port == wellKnown
}
