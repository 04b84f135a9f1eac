package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Skew is how far the clock of a peer may be behind: the validity of a certificate begins that long before it is
// issued.
const Skew = 2 * time.Minute

// Leaf is a certificate to issue. Either URI or Names is set.
type Leaf struct {
	URI   string   // SPIFFE ID of a workload
	Names []string // DNS names and IP addresses of a server
	Key   crypto.PublicKey
	TTL   time.Duration
}

// Hosts returns the DNS names and the IP addresses of a server.
func (l Leaf) Hosts() (dns []string, ips []net.IP) {
	for _, n := range l.Names {
		if ip := net.ParseIP(n); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, n)
		}
	}
	return dns, ips
}

// Sign returns the DER of a leaf certificate signed by the bundle's CA, and its expiry, which is no later than the
// expiry of the CA's chain. The signed certificate is checked again before it is returned.
func (b *Bundle) Sign(l Leaf, now time.Time) (der []byte, notAfter time.Time, err error) {
	t := &x509.Certificate{
		NotBefore:             now.Add(-Skew),
		NotAfter:              earlier(now.Add(l.TTL), b.notAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	t.DNSNames, t.IPAddresses = l.Hosts()
	if l.URI != "" {
		u, err := url.Parse(l.URI)
		if err != nil {
			return nil, notAfter, err
		}
		t.URIs = []*url.URL{u}
	} else {
		t.Subject = pkix.Name{CommonName: l.Names[0]}
	}
	der, err = x509.CreateCertificate(rand.Reader, t, b.Certificate, l.Key, b.key)
	if err != nil {
		return nil, notAfter, err
	}
	if err := b.check(der, l, now); err != nil {
		return nil, notAfter, fmt.Errorf("the signed certificate differs from the requested one: %w", err)
	}
	return der, t.NotAfter, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// check returns an error unless a signed certificate matches l and leads to a root. It guards Sign: a fault in creating
// certificates grants no further names or rights.
func (b *Bundle) check(der []byte, l Leaf, now time.Time) error {
	c, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return err
	case !c.BasicConstraintsValid:
		return errors.New("it does not say that it may not sign")
	case c.NotAfter.After(b.notAfter):
		return errors.New("it is valid for longer than what leads to its root")
	}
	return l.verify(c, b.pool, b.intermediates, now)
}

// Verify returns an error unless the first certificate of a chain that another system signed matches l, and the chain
// leads to a root.
func (l Leaf) Verify(chain, roots []*x509.Certificate, now time.Time) error {
	pool, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		pool.AddCert(c)
	}
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	return l.verify(chain[0], pool, intermediates, now)
}

func (l Leaf) verify(c *x509.Certificate, roots, intermediates *x509.CertPool, now time.Time) error {
	uris := lists.Map(c.URIs, func(u *url.URL) string { return u.String() })
	dns, ips := l.Hosts()
	var want []string
	if l.URI != "" {
		want = []string{l.URI}
	}
	key, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !slices.Equal(uris, want) || !slices.Equal(c.DNSNames, dns) ||
		!slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal) || len(c.EmailAddresses) > 0:
		return errors.New("it has other names")
	case c.IsCA || c.KeyUsage&^(x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment) != 0:
		return errors.New("it has other rights")
	case !ok || !key.Equal(l.Key):
		return errors.New("it is for another key")
	case !c.NotBefore.Before(now) || !c.NotAfter.After(now) || c.NotAfter.After(now.Add(l.TTL)):
		return errors.New("it is not valid for the right time")
	case c.SerialNumber.Sign() <= 0:
		return errors.New("it has no serial number")
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} { // both usages are required
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return err
		}
	}
	return nil
}
