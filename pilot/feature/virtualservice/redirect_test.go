package virtualservice

import (
	"testing"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TestSchemePort: a redirect of a route of the Gateway API that changes the scheme alone leads to the scheme's
// well-known port, whatever the port of the request. Where a host names no port, none is written.
func TestSchemePort(t *testing.T) {
	for _, c := range []struct {
		of       *networkingv1alpha3.HTTPRedirect
		at, want uint32
	}{
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, 8080, 443},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "http"}, 8443, 80},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https"}, 80, 0},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "http"}, 443, 0},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https", Authority: "a.org"}, 8080, 0},
		{&networkingv1alpha3.HTTPRedirect{Uri: "/a"}, 8080, 0},
		{&networkingv1alpha3.HTTPRedirect{Scheme: "https", RedirectPort: &networkingv1alpha3.HTTPRedirect_Port{Port: 9}}, 8080, 9},
	} {
		for _, gatewayAPI := range []bool{true, false} {
			o := options(feature.RouteOptions{Object: &kinds.Object{Extra: &kinds.RouteExtra{SchemePort: gatewayAPI}}, Port: c.at})
			want := c.want
			if !gatewayAPI && c.of.RedirectPort == nil {
				want = 0
			}
			if got := o.redirect(c.of).Redirect.PortRedirect; got != want {
				t.Errorf("%v at port %d, of the Gateway API %v: port %d, want %d", c.of, c.at, gatewayAPI, got, want)
			}
		}
	}
}
