package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// System in place of a file of roots means the roots of the operating system.
const System = "SYSTEM"

// Security says where certificates and tokens come from, and which roots the agent trusts. The files may be missing.
type Security struct {
	Discovery string // HOST:PORT of the control plane
	CA        string // HOST:PORT of the CA
	// DiscoveryHeaders and CAHeaders are sent with each call: XDS_HEADER_NAME and CA_HEADER_NAME.
	DiscoveryHeaders, CAHeaders map[string]string
	// ServerName is the DNS name that the control plane's certificate must have.
	ServerName string
	// CAServerName is the DNS name that the CA's certificate must have.
	CAServerName   string
	DiscoveryRoots string // PEM file, or System
	CARoots        string // PEM file, or System
	// Token is the file of the bearer token. If it is empty, no token is sent.
	Token string
	// CertificateFolder is PROV_CERT, a folder with the files cert-chain.pem and key.pem of a client certificate. It
	// may be empty.
	CertificateFolder string
	TrustDomain       string
	TTL               time.Duration
	Grace, Jitter     float64
	// RSA is the size of an RSA key in bits. Zero means ECDSA.
	RSA   int
	Curve string // curve of an ECDSA key
	PKCS8 bool
	// Output is the folder that certificates are written to. It may be empty.
	Output string
	// Files means that the workload's certificate is read from files, and no CA is asked.
	Files bool
	// Mounted means Files, and that the agent shows this certificate to the control plane and sends no token.
	Mounted           bool
	Chain, Key, Roots string // files of the workload's certificate
	Signer            string // Kubernetes signer that the CA should use
}

// Files in which the platform of a cluster puts the certificate of a workload, if it issues one.
const (
	credentials      = "./var/run/secrets/workload-spiffe-credentials"
	credentialsChain = "certificates.pem"
	credentialsKey   = "private_key.pem"
	credentialsRoots = "ca_certificates.pem"
)

// allExist reports whether a folder has all of the files.
func allExist(folder string, names ...string) bool {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return false
		}
	}
	return true
}

// Plaintext reports whether an address has the port without TLS.
func Plaintext(address string) bool { return strings.HasSuffix(address, ":15010") }

func (c *Config) security(s Source, env *environment, trustDomain string) {
	discovery := c.Proxy.GetDiscoveryAddress()
	d := &c.Security
	*d = Security{
		Discovery: discovery, CA: env.text("CA_ADDR", discovery), TrustDomain: trustDomain, ServerName: env.text("ISTIOD_SAN", hostOf(discovery)),
		CertificateFolder: env.text("PROV_CERT", ""), Output: env.text("OUTPUT_CERTS", ""), Mounted: env.flag("FILE_MOUNTED_CERTS"),
		TTL: env.duration("SECRET_TTL", 24*time.Hour), Grace: env.ratio("SECRET_GRACE_PERIOD_RATIO", 0.5),
		Jitter: env.ratio("SECRET_GRACE_PERIOD_RATIO_JITTER", 0.01),
		Curve:  env.text("ECC_CURVE", "P256"), PKCS8: env.flag("PKCS8_KEY"), Signer: env.text("ISTIO_META_CERT_SIGNER", ""),
	}
	d.DiscoveryHeaders, d.CAHeaders = env.headers("XDS_HEADER_"), env.headers("CA_HEADER_")
	d.CAServerName = env.text("ISTIOD_SAN", hostOf(d.CA))
	if d.Output != "" {
		d.Output = s.path(d.Output)
	}
	switch algorithm := env.text("ECC_SIGNATURE_ALGORITHM", ""); algorithm {
	case "ECDSA":
	case "":
		d.RSA = env.number("WORKLOAD_RSA_KEY_SIZE", 0)
	default:
		env.errs = append(env.errs, fmt.Errorf("ECC_SIGNATURE_ALGORITHM=%q: write ECDSA, or unset the variable", algorithm))
	}
	if provider := env.text("CA_PROVIDER", "Citadel"); provider != "Citadel" {
		env.errs = append(env.errs, fmt.Errorf("CA_PROVIDER=%q: only Citadel is supported: write Citadel, or unset the variable", provider))
	}

	roots := s.path("./var/run/secrets/istio/root-cert.pem")
	switch provider := env.text("PILOT_CERT_PROVIDER", "istiod"); provider {
	case "istiod":
	case "kubernetes":
		roots = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	case "custom":
		roots = s.path("./etc/certs/root-cert.pem")
	default:
		if !strings.HasPrefix(provider, "k8s.io/") {
			env.errs = append(env.errs, fmt.Errorf("PILOT_CERT_PROVIDER=%q: write istiod, kubernetes, custom or k8s.io/SIGNER", provider))
		}
	}
	if d.CertificateFolder != "" {
		d.CertificateFolder = s.path(d.CertificateFolder)
	}
	if folder := s.path(credentials); !d.Mounted && allExist(folder, credentialsChain, credentialsKey, credentialsRoots) {
		d.Files, d.Chain, d.Key, d.Roots = true, folder+"/"+credentialsChain, folder+"/"+credentialsKey, folder+"/"+credentialsRoots
	}
	if d.Mounted {
		d.Files = true
		folder := s.path("./etc/certs")
		d.Chain, d.Key, d.Roots = folder+"/cert-chain.pem", folder+"/key.pem", folder+"/root-cert.pem"
		d.Chain = env.text("ISTIO_META_TLS_CLIENT_CERT_CHAIN", d.Chain)
		d.Key, d.Roots = env.text("ISTIO_META_TLS_CLIENT_KEY", d.Key), env.text("ISTIO_META_TLS_CLIENT_ROOT_CERT", d.Roots)
		roots = d.Roots
	}
	d.DiscoveryRoots, d.CARoots = cmp.Or(env.text("XDS_ROOT_CA", ""), roots), cmp.Or(env.text("CA_ROOT_CA", ""), roots)

	switch policy := env.text("JWT_POLICY", "third-party-jwt"); policy {
	case "third-party-jwt":
		d.Token = s.path("./var/run/secrets/tokens/istio-token")
	case "first-party-jwt":
		d.Token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	case "none":
	default:
		env.errs = append(env.errs, fmt.Errorf("JWT_POLICY=%q: write third-party-jwt, first-party-jwt or none", policy))
	}
}
