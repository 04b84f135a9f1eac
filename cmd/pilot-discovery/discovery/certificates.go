package discovery

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	citadel "github.com/istiod-lite/istiod-lite/citadel/server"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
)

// registerCertificates takes the certificate authority's flags, and istiod's variables.
func (f *flags) registerCertificates(flags *pflag.FlagSet, e *env.Env) {
	c := &f.o.Certificates
	flags.StringVar(&c.StateDir, "stateDir", "", "directory for a certificate authority of the server's own and the key of its tokens, "+
		"where there is no Kubernetes; no other user but root may own or read it")
	flags.StringVar(&f.minTLS, "tls-min-version", "1.2", "minimum TLS version: 1.2 or 1.3")
	c.Off = !e.Permitted("ENABLE_CA_SERVER")
	c.Cacerts = e.Text("USE_CACERTS_FOR_SELF_SIGNED_CA", "false") == "true"
	c.Audiences = cli.Fields(e.Text("TOKEN_AUDIENCES", "istio-ca"))
	c.RootsMap = e.Text("PILOT_CA_CERT_CONFIGMAP", names.RootsMap)
	c.TrustBundle = e.Asked("ENABLE_CLUSTER_TRUST_BUNDLE_API")
	c.CRLMap = e.Text("PILOT_CRL_CONFIGMAP", names.CRLMap)
	flags.StringVar(&c.Serving.Certificate, "tlsCertFile", "",
		"serving certificate from an external CA, as PEM; without it this server's certificate authority issues one")
	flags.StringVar(&c.Serving.Key, "tlsKeyFile", "", "private key of --tlsCertFile")
	flags.StringVar(&c.Serving.Roots, "caCertFile", "",
		"roots with which proxies verify --tlsCertFile; without it the roots of the certificate authority")
	f.external = e.Text("EXTERNAL_CA", "")
	c.Signing.Default, c.Signing.Domain = e.Text("K8S_SIGNER", ""), e.Text("CERT_SIGNER_DOMAIN", "")
	f.provider = e.Text("PILOT_CERT_PROVIDER", istiodProvider)
	c.Folder = e.Text("ROOT_CA_DIR", "./etc/cacerts")
	c.MultiRoot = e.Asked("ISTIO_MULTIROOT_MESH")
	c.TTL = e.Bound("DEFAULT_WORKLOAD_CERT_TTL", 24*time.Hour)
	c.MaxTTL = e.Bound("MAX_WORKLOAD_CERT_TTL", 24*time.Hour)
	c.RootTTL = e.Bound("CITADEL_SELF_SIGNED_CA_CERT_TTL", 10*365*24*time.Hour)
	c.Grace = e.Number("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", 20)
	c.Interval = e.Duration("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", time.Hour)
	c.ServerNames = cli.Fields(e.Text("ISTIOD_CUSTOM_HOST", ""))
	c.Rule = e.Text("JWT_RULE", "")
	f.nodeAccounts = e.Text("CA_TRUSTED_NODE_ACCOUNTS", "")
	f.gateways = e.Text("TRUSTED_GATEWAY_CIDR", "")
}

// certificates completes the options of the certificate authority.
func (f *flags) certificates(c *bootstrap.Certificates) error {
	versions := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	if err := f.provide(c); err != nil {
		return err
	}
	if c.MinTLS = versions[f.minTLS]; c.MinTLS == 0 {
		return fmt.Errorf("--tls-min-version=%s: write 1.2 or 1.3", f.minTLS)
	}
	if err := f.o.Compliance.Conflict(c.MinTLS); err != nil {
		return fmt.Errorf("--tls-min-version=%s: %w", f.minTLS, err)
	}
	switch grace := c.RootTTL / 100 * time.Duration(c.Grace); {
	case c.TTL <= 0 || c.MaxTTL < c.TTL:
		return fmt.Errorf("DEFAULT_WORKLOAD_CERT_TTL (%s) must be at most MAX_WORKLOAD_CERT_TTL (%s)", c.TTL, c.MaxTTL)
	case c.Grace <= 0 || c.Grace >= 100:
		return fmt.Errorf("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE (%d) must be between 1 and 99", c.Grace)
	case grace <= c.MaxTTL+2*c.Interval+time.Hour: // or the root would expire before its successor may sign
		return fmt.Errorf("a root is replaced in the last %d %% of CITADEL_SELF_SIGNED_CA_CERT_TTL (%s): that is %s, and must be longer "+
			"than MAX_WORKLOAD_CERT_TTL (%s) and "+
			"twice CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL (%s) together", c.Grace, c.RootTTL, grace, c.MaxTTL, c.Interval)
	}
	for _, text := range cli.Fields(f.nodeAccounts) {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("CA_TRUSTED_NODE_ACCOUNTS=%s: write namespace/name of service accounts, separated by commas", f.nodeAccounts)
		}
		c.NodeAccounts = append(c.NodeAccounts, citadel.NodeAccount{Namespace: namespace, Name: name})
	}
	var err error
	c.Gateways, err = cli.Cidrs("TRUSTED_GATEWAY_CIDR", f.gateways)
	return err
}

// Values of PILOT_CERT_PROVIDER, which says where the server's own certificate comes from.
const (
	istiodProvider = "istiod"  // the certificate authority of this server
	customProvider = "custom"  // files
	noProvider     = "none"    // none: without files the secure port does not listen
	signerProvider = "k8s.io/" // a Kubernetes signer, whose name follows
)

// kubernetesRA is the value of EXTERNAL_CA for which Kubernetes signers sign workloads' certificates.
const kubernetesRA = "ISTIOD_RA_KUBERNETES_API"

// clusterRoots is the file with the root certificates of the cluster's own signers.
const clusterRoots = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// servingFiles are the files where istiod's charts mount a serving certificate that an external CA issued. Its roots
// are in one of two places: https://istio.io/latest/news/releases/1.16.x/announcing-1.16/change-notes/.
func servingFiles() (files authority.Files, otherRoots string) {
	const dir = "./var/run/secrets/istiod/"
	return authority.Files{Certificate: dir + "tls/tls.crt", Key: dir + "tls/tls.key", Roots: dir + "ca/root-cert.pem"}, dir + "tls/ca.crt"
}

// provide completes the options with the source of the server's own certificate.
func (f *flags) provide(c *bootstrap.Certificates) error {
	s := &c.Serving
	if mounted, otherRoots := servingFiles(); *s == (authority.Files{}) && cli.Exists(mounted.Certificate) && cli.Exists(mounted.Key) {
		*s = mounted
		switch {
		case cli.Exists(s.Roots):
		case cli.Exists(otherRoots):
			s.Roots = otherRoots
		case c.Off: // the server retries at start until the files are mounted
			return fmt.Errorf("%s exists, but its roots are neither in %s nor in %s: with ENABLE_CA_SERVER=false mount them there",
				s.Certificate, s.Roots, otherRoots)
		default:
			s.Roots = ""
		}
	}
	switch given := s.Certificate != ""; {
	case given != (s.Key != "") || !given && s.Roots != "":
		return errors.New("give --tlsCertFile and --tlsKeyFile together, and --caCertFile only with them")
	case !given && f.provider == noProvider: // an error that names the missing source
		c.Off = true
	case given, f.provider == istiodProvider, f.provider == "":
	case strings.HasPrefix(f.provider, signerProvider) && f.provider != signerProvider:
		c.Signing.Server = strings.TrimPrefix(f.provider, signerProvider)
	case f.provider == customProvider:
		return errors.New("PILOT_CERT_PROVIDER=custom needs --tlsCertFile and --tlsKeyFile, or the Secret istiod-tls mounted at " +
			"/var/run/secrets/istiod/tls")
	default:
		return fmt.Errorf("PILOT_CERT_PROVIDER=%s is not supported: write istiod, custom, none, or k8s.io/ and the name of a signer", f.provider)
	}
	switch {
	case f.external == "":
	case f.external == kubernetesRA && c.Off:
		return fmt.Errorf("EXTERNAL_CA=%s lets this server certify workloads, but ENABLE_CA_SERVER=false forbids it: remove one of them",
			f.external)
	case f.external == kubernetesRA:
		c.Signing.Workloads = true
	default:
		return fmt.Errorf("EXTERNAL_CA=%s is not supported: write %s, or nothing for a CA of the server's own", f.external, kubernetesRA)
	}
	c.Signing.Roots = clusterRoots
	return nil
}
