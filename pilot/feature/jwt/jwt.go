package jwt

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Mode says whether the server or proxies fetch the keys of a jwksUri.
type Mode string

// Values of Mode. Proxies fetch keys through the cluster of the service that has the URI's host and port.
const (
	Server  Mode = ""       // this server
	Hybrid  Mode = "hybrid" // proxies if there is such a service; otherwise this server
	Proxies Mode = "envoy"  // proxies
)

// noToken is the effect of a rule without keys, in findings.
const noToken = "no token of this rule is accepted"

// New returns the feature.
func New(m Mode) *feature.Feature {
	return &feature.Feature{
		Name:  "jwt",
		Kinds: []*kinds.Kind{kinds.RequestAuthentication},
		Part:  feature.InboundPart,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, matches, kinds.RequestAuthentication)
		},
		Facts:       m.wants,
		Unsupported: m.unsupported,
		Hooks:       feature.Hooks{FiltersReadOf: filtersReadOf, HTTPFilters: m.httpFilters},
	}
}

func spec(o *kinds.Object) *securityv1.RequestAuthentication {
	return o.Spec.(*securityv1.RequestAuthentication)
}

// matches reports whether a policy has rules and applies to a workload.
func matches(o *kinds.Object, w feature.Workload) bool {
	return len(spec(o).JwtRules) > 0 && feature.Matches(o, w)
}

// wants returns the key sets that a policy needs, and the services from which proxies may fetch them.
func (m Mode) wants(policy *kinds.Object) (list []facts.Want) {
	for i, r := range spec(policy).JwtRules {
		if m != Server && r.Jwks == "" && r.JwksUri != "" {
			w := facts.Want{Key: service(r), Field: rulePath(i) + ".jwksUri"}
			if m == Proxies {
				w.Without = noToken
			}
			list = append(list, w)
		}
		if k, ok := m.keySet(r); ok {
			field := "jwksUri"
			if r.JwksUri == "" {
				field = "issuer"
			}
			list = append(list, facts.Want{Key: k, Field: rulePath(i) + "." + field, Without: noToken})
		}
	}
	return list
}

// keySet returns the key set that the server fetches for a rule. It returns false if the server fetches none.
func (m Mode) keySet(r *securityv1.JWTRule) (kinds.Key, bool) {
	if r.Jwks != "" || r.JwksUri != "" && m == Proxies {
		return kinds.Key{}, false
	}
	s := jwks.Remote{URI: r.JwksUri, Issuer: r.Issuer, Timeout: timeout(r)}
	if s.URI == "" {
		if _, err := s.Discovery(); err != nil {
			return kinds.Key{}, false
		}
	}
	return kinds.Key{Kind: kinds.JWKS, Name: s.Name()}, true
}

// keys returns the key set by which the tokens of a rule are verified. Without keys it is a set by which no token is
// valid.
func (m Mode) keys(r *securityv1.JWTRule, s feature.Selection) string {
	if r.Jwks != "" {
		if set, _, err := jwks.Inline(r.Jwks); err == nil {
			return set
		}
		return jwks.AcceptsNone
	}
	if k, ok := m.keySet(r); ok {
		if set, ok := facts.Value[string](s.Fact(k)); ok {
			return set
		}
		return jwks.NotFetched
	}
	return jwks.AcceptsNone
}

// byProxies reports whether proxies fetch the keys of a rule.
func (m Mode) byProxies(r *securityv1.JWTRule, s feature.Selection) bool {
	return r.Jwks == "" && r.JwksUri != "" && readable(r.JwksUri) && (m == Proxies || m == Hybrid && s.Fact(service(r)) != nil)
}

// readable reports whether proxies accept a URI. They reject a listener with another one. In the mode Hybrid the server
// fetches the keys of such a URI.
func readable(uri string) bool {
	u, err := url.Parse(uri)
	if err != nil || strings.HasSuffix(u.Host, ":") || strings.ContainsFunc(uri, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || c == '#'
	}) {
		return false
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil && u.Port() != "" {
		return false
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == ""
	}
	return host != "" && !strings.ContainsFunc(host, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-'
	})
}

// service returns the key of the fact that there is a service from which proxies may fetch the keys of a rule.
func service(r *securityv1.JWTRule) kinds.Key {
	host, port := hostOf(r.JwksUri)
	return facts.ServicePort(host, port)
}

// hostOf returns the host and the port of a URI.
func hostOf(uri string) (host string, port uint32) {
	u, err := url.Parse(uri)
	if err != nil {
		return uri, 0
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return u.Hostname(), uint32(n)
	}
	if u.Scheme == "http" {
		return u.Hostname(), 80
	}
	return u.Hostname(), 443
}

// timeout returns the time limit for fetching the keys of a rule.
func timeout(r *securityv1.JWTRule) time.Duration {
	if d := r.Timeout.AsDuration(); d > 0 {
		return min(d, jwks.MaxTimeout)
	}
	return jwks.DefaultTimeout
}

func rulePath(i int) string { return fmt.Sprintf("spec.jwtRules[%d]", i) }
