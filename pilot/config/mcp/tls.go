package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Files are paths of PEM files.
type Files struct {
	Certificate, Key string
	CA               string // trusted roots; empty for the system's
}

// Timeouts of a connection. It is closed after keepaliveTime and keepaliveTimeout without a sign of life.
const (
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
	connectTimeout   = 20 * time.Second
)

// dialer makes connections to one server.
type dialer struct {
	address    string
	secure     bool
	files      Files
	crl        string
	serverName string
	names      []string // names of which the server must prove one; empty for serverName
	unverified bool
	token      string // path of a file
	largest    int    // largest response in bytes
	compliance compliance.Policy
}

// newDialer parses the settings. Its errors begin with the name of a field of tlsSettings.
func newDialer(o Options, host string) (*dialer, []diag.Diagnostic, error) {
	t := o.TLS
	d := &dialer{
		address: o.Address, secure: true, files: Files{CA: t.GetCaCertificates()}, crl: t.GetCaCrl(), serverName: cmp.Or(t.GetSni(), host),
		names:      t.GetSubjectAltNames(),
		unverified: t.GetInsecureSkipVerify().GetValue(), token: o.Token, largest: o.Limits.ConfigResponse, compliance: o.Compliance,
	}
	var warnings []diag.Diagnostic
	warn := func(field, message, fix string) {
		warnings = append(warnings, diag.Diagnostic{
			Severity: diag.Warning, Code: "ConfigSource", Object: "MeshConfig", Field: "configSources.tlsSettings." + field, Message: message,
			Fix: fix,
		})
	}
	switch t.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_DISABLE:
		d.secure = false
	case networkingv1alpha3.ClientTLSSettings_SIMPLE:
		if t.GetClientCertificate() != "" || t.GetPrivateKey() != "" {
			warn(
				"clientCertificate", "in mode SIMPLE no client certificate is sent",
				"set mode to MUTUAL, or remove clientCertificate and privateKey",
			)
		}
	case networkingv1alpha3.ClientTLSSettings_MUTUAL:
		d.files.Certificate, d.files.Key = t.GetClientCertificate(), t.GetPrivateKey()
		switch {
		case d.files.Certificate == "":
			return nil, nil, errors.New("clientCertificate: mode MUTUAL needs the path of a certificate")
		case d.files.Key == "":
			return nil, nil, errors.New("privateKey: mode MUTUAL needs the path of the certificate's key")
		}
	case networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		if o.Workload.Certificate == "" || o.Workload.Key == "" || o.Workload.CA == "" {
			return nil, nil, errors.New(
				"mode: ISTIO_MUTUAL needs the workload certificate of this control plane, and it has none: use MUTUAL and name the files, or SIMPLE",
			)
		}
		d.files = o.Workload
		if d.unverified {
			d.unverified = false
			warn(
				"insecureSkipVerify", "in mode ISTIO_MUTUAL the server is verified all the same",
				"remove insecureSkipVerify, or set mode to SIMPLE or MUTUAL",
			)
		}
	default:
		return nil, nil, fmt.Errorf("mode: unknown mode %v", t.GetMode())
	}
	const files = "name files by caCertificates, clientCertificate and privateKey"
	if t.GetCredentialName() != "" {
		warn("credentialName", "credentialName is for gateways: it has no effect here", files)
	}
	if t.GetCaCertCredentialName() != "" {
		warn("caCertCredentialName", "caCertCredentialName is for gateways: it has no effect here", files)
	}
	if d.secure && d.unverified {
		d.token = ""
		warn(
			"insecureSkipVerify", "the server is not verified: whoever answers is believed, and no token is sent to it",
			"name its CA by caCertificates",
		)
	}
	return d, warnings, nil
}

// dial returns a connection, which is opened when it is first used. It reads the files now.
func (d *dialer) dial() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(d.largest)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDisableServiceConfig(),
	}
	if d.secure {
		c, err := d.config()
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(d.compliance.Limit(c))))
		if d.token != "" {
			options = append(options, grpc.WithPerRPCCredentials(bearer(d.token)))
		}
	} else {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	return grpc.NewClient(d.address, options...)
}

func (d *dialer) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: d.serverName, InsecureSkipVerify: d.unverified}
	if d.files.CA != "" {
		data, err := safe.ReadFile(d.files.CA)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if err := armor.AddRoots(c.RootCAs, data); err != nil {
			return nil, fmt.Errorf("read the CA certificates: %s: %w", d.files.CA, err)
		}
	}
	if d.files.Certificate != "" {
		pair, err := safe.KeyPair(d.files.Certificate, d.files.Key)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if d.unverified || len(d.names) == 0 && d.crl == "" {
		return c, nil
	}
	var revoked []*x509.RevocationList
	if d.crl != "" {
		var err error
		if revoked, err = readCRL(d.crl); err != nil {
			return nil, fmt.Errorf("read the revocation list: %w", err)
		}
	}

	c.InsecureSkipVerify = true // VerifyConnection does it, for the server may prove another name than the one that it is reached by
	c.VerifyConnection = func(state tls.ConnectionState) error { return d.verify(state, c.RootCAs, revoked) }
	return c, nil
}

// verify verifies a server as crypto/tls does, but with subjectAltNames instead of the server's name, and with the
// revocation lists.
func (d *dialer) verify(state tls.ConnectionState, roots *x509.CertPool, revoked []*x509.RevocationList) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	leaf := state.PeerCertificates[0]
	how := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		how.Intermediates.AddCert(c)
	}
	if len(d.names) == 0 {
		how.DNSName = d.serverName
	}
	chains, err := leaf.Verify(how)
	if err != nil {
		return err
	}
	if len(d.names) > 0 && !slices.ContainsFunc(namesOf(leaf), func(n string) bool { return slices.Contains(d.names, n) }) {
		return fmt.Errorf("the server is %q, and none of subjectAltNames %q", namesOf(leaf), d.names)
	}
	if slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool { return !isRevoked(chain, revoked) }) {
		return nil
	}
	return errors.New("the server's certificate is revoked")
}

func namesOf(c *x509.Certificate) []string {
	names := slices.Concat(c.DNSNames, c.EmailAddresses)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// isRevoked reports whether a list of its issuer has a certificate of the chain.
func isRevoked(chain []*x509.Certificate, lists []*x509.RevocationList) bool {
	for i := range len(chain) - 1 {
		for _, list := range lists {
			if !bytes.Equal(list.RawIssuer, chain[i].RawIssuer) || !signedBy(list, chain[i+1]) {
				continue
			}
			if slices.ContainsFunc(
				list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(chain[i].SerialNumber) == 0 },
			) {
				return true
			}
		}
	}
	return false
}

// signedBy reports whether an issuer signed a list. A list that is signed with SHA-1 still revokes, although verifying
// SHA-1 panics in Go's mode fips140=only.
func signedBy(l *x509.RevocationList, issuer *x509.Certificate) (ok bool) {
	fips140.WithoutEnforcement(func() { ok = l.CheckSignatureFrom(issuer) == nil })
	return ok
}

func readCRL(path string) ([]*x509.RevocationList, error) {
	data, err := safe.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lists []*x509.RevocationList
	blocks, err := armor.Blocks(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, block := range blocks {
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		lists = append(lists, list)
	}
	if lists == nil {
		return nil, fmt.Errorf("%s holds none", path)
	}
	return lists, nil
}

// bearer is a file whose content is sent with each request, if it exists.
type bearer string

// GetRequestMetadata reads the file.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := safe.ReadFile(string(b))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + string(bytes.TrimSpace(token))}, nil
}

// RequireTransportSecurity prevents sending the token in plaintext.
func (bearer) RequireTransportSecurity() bool { return true }
