package secureport

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/server"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/citadel/trustdomain"
)

// Options are the operator's options for certificates.
type Options struct {
	Off      bool   // no CA, because other systems certify workloads: ENABLE_CA_SERVER=false
	StateDir string // folder of a self-signed CA and of the token key, without Kubernetes; empty if there is neither
	Folder   string // folder of a plugged-in CA
	// MultiRoot allows a plugged-in CA to be replaced at once by one with another root. Then proxies receive the
	// trusted roots from the control plane: ISTIO_MULTIROOT_MESH.
	MultiRoot bool

	Audiences    []string // accepted audiences of Kubernetes tokens
	NodeAccounts []server.NodeAccount

	TTL, MaxTTL time.Duration // default and longest lifetime of workloads' certificates
	RootTTL     time.Duration // lifetime of a self-signed root
	Grace       int           // percentage of RootTTL, at its end, in which the root is replaced
	Interval    time.Duration // how long a step of the replacement must have been due

	ServerNames []string       // further DNS names of this server, besides those of its Service
	Gateways    []netip.Prefix // addresses from which forwarded certificates are accepted
	Rule        string         // JWT_RULE: tokens of an OpenID provider; empty for none
	Signing     Signing
	Serving     authority.Files // certificate of this server that another system issued; optional
}

// Signing names the signers of Kubernetes that sign instead of the CA.
type Signing struct {
	Workloads bool   // signers also sign workloads' certificates: EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API
	Default   string // signer for callers that name none: K8S_SIGNER
	Domain    string // domain of the signers that callers may name: CERT_SIGNER_DOMAIN
	Server    string // signer of the server's own certificate, PILOT_CERT_PROVIDER=k8s.io/<signer>; empty for none
	Roots     string // file with the roots of signers for which the mesh configuration has none
}

// Parts are the other parts of the server that the port uses.
type Parts struct {
	Mesh      trustdomain.Mesh
	Bundles   trustdomain.Bundles
	Workloads server.Workloads
	Fetcher   jwks.Fetcher

	Client         *rest.Config          // client of the server's own cluster; nil unless the server runs in a pod
	Clusters       authenticate.Clusters // clusters whose tokens are accepted; nil without a Client
	ClusterID      string
	ClusterAliases map[string]string

	Store store.Store // holds a self-signed CA; nil if StateDir holds it
	Lease store.Lease // required to replace the root of a self-signed CA

	NoWatch bool // poll files each second instead of using the operating system's events

	// Compliance limits the TLS of connections to other servers of this control plane.
	Compliance compliance.Policy

	Namespace, Revision, Domain string
	Local                       bool // proxies run on this host, so the server's certificate has its names too

	Limits     limits.Limits
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Certified reports whether the server has a CA, or other systems certify it. member says whether it runs in a pod of
// its cluster. It is an error if signers of Kubernetes are configured but cannot sign.
func (o Options) Certified(member bool) (bool, error) {
	if _, err := o.signs(member); err != nil {
		return false, err
	}
	if o.Off {
		return o.Serving != (authority.Files{}) || o.Signing.Server != "", nil
	}
	plugged, err := store.ReadPlugged(o.Folder, time.Now())
	return plugged != nil || o.StateDir != "" || member, err
}

// signs reports whether signers of Kubernetes sign certificates. It is an error if they are configured but cannot.
func (o Options) signs(member bool) (bool, error) {
	switch s := o.Signing; {
	case !s.Workloads && s.Server == "":
		return false, nil
	case !member:
		return false, errors.New("signers of Kubernetes sign only for a server that is a pod of its cluster: " +
			"EXTERNAL_CA and PILOT_CERT_PROVIDER=k8s.io/... need POD_NAME")
	case s.Workloads && s.Server == "" && o.Serving == (authority.Files{}):
		return false, errors.New("with EXTERNAL_CA the server has no CA for its own certificate: " +
			"set PILOT_CERT_PROVIDER=k8s.io/<signer>, or --tlsCertFile and --tlsKeyFile")
	case s.Workloads && s.Default == "" && s.Domain == "":
		return false, errors.New("EXTERNAL_CA needs a signer: set K8S_SIGNER or CERT_SIGNER_DOMAIN")
	}
	return true, nil
}

// byDefault returns the signers for callers that name none, and for the server.
func (s Signing) byDefault() []string {
	if !s.Workloads {
		return nil
	}
	return slices.DeleteFunc([]string{s.Default, s.Server}, func(signer string) bool { return signer == "" })
}

// ServiceName returns the name of the Service, and of the service account, of a revision's control plane.
func ServiceName(revision string) string {
	if revision == "" || revision == "default" {
		return "istiod"
	}
	return "istiod-" + revision
}

// names returns the DNS names and addresses at which proxies call the server. The operator's names may be IP addresses,
// because an agent outside a cluster may have no DNS name to call.
func (p *Port) names() []string {
	at := "." + p.parts.Namespace + ".svc"
	names := []string{"istiod" + at, "istiod-remote" + at, "istio-pilot" + at}
	if own := ServiceName(p.parts.Revision); own != "istiod" {
		names = append(names, own+at)
	}
	if p.parts.Local {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	own := p.serverNames
	if m := p.parts.Mesh.Mesh(); m != nil {
		if host, _, err := net.SplitHostPort(m.GetDefaultConfig().GetDiscoveryAddress()); err == nil {
			own = append(slices.Clip(own), host)
		}
	}
	for _, n := range own {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}
