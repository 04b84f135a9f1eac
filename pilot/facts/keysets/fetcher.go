package keysets

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// FetchOptions are what an operator says about fetching URLs that users write.
type FetchOptions struct {
	Allow, Block []netip.Prefix // see safe.FetchOptions
	ExtraRoots   string         // path of a file with roots to trust beside the system's; it need not exist
	Insecure     bool           // the certificates of servers are not verified
	// Proxy returns the proxy by which a URL is fetched, or nil; see safe.FetchOptions.
	Proxy func(*url.URL) (*url.URL, error)
}

// NewFetcher makes the Fetcher of a server.
func NewFetcher(o FetchOptions, l limits.Limits, log *slog.Logger) (*safe.Fetcher, error) {
	if len(o.Allow) > 0 {
		log.Warn("any author of a RequestAuthentication can have this server send requests to addresses that are not public", "ALLOWED_CIDRS_IN_JWKS_URIS", o.Allow)
	}
	if o.Insecure {
		log.Warn("anyone who can intercept the fetch of a key set can make tokens: certificates of servers of keys are not verified",
			"JWKS_RESOLVER_INSECURE_SKIP_VERIFY", true)
	}
	roots, err := rootsWith(o.ExtraRoots)
	if err != nil {
		return nil, fmt.Errorf("the roots that servers of keys are trusted by: %w", err)
	}
	base, _ := http.DefaultTransport.(*http.Transport)
	transport := base.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, InsecureSkipVerify: o.Insecure} //nolint:gosec // as the operator says
	transport.MaxResponseHeaderBytes = l.KeySetHeader
	return safe.NewFetcher(safe.FetchOptions{
		Size: l.KeySet, Timeout: jwks.MaxTimeout, Redirects: l.KeySetRedirects, Allow: o.Allow, Block: o.Block, Transport: transport, Proxy: o.Proxy,
	}), nil
}

// rootsWith returns the system's roots and the roots in a file. If there is no file it returns nil, which stands for
// the system's.
func rootsWith(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := safe.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if err := armor.AddRoots(roots, text); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return roots, nil
}
