package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
)

// KeySets are the options of how the keys of token issuers are fetched, for RequestAuthentications.
type KeySets struct {
	Every  time.Duration     // how often; 0 is 20 min
	Remote catalog.FetchMode // who fetches the keys of a jwksUri

	Allow, Block []netip.Prefix // see safe.FetchOptions
	ExtraRoots   string         // a file with roots to trust beside the system's; it need not exist
	Insecure     bool           // servers of keys need not prove who they are
	// Proxy returns the proxy by which a URL is fetched, or nil; see safe.FetchOptions.
	Proxy func(*url.URL) (*url.URL, error)
}

// newKeySets makes what fetches the keys of token issuers.
func (s *Server) newKeySets() (*keysets.KeySets, error) {
	o, log := s.o.KeySets, s.o.Logger.With("scope", "model")
	if len(o.Allow) > 0 {
		log.Warn("whoever may write a RequestAuthentication can have this server send requests to addresses that are not public", "ALLOWED_CIDRS_IN_JWKS_URIS", o.Allow)
	}
	if o.Insecure {
		log.Warn("whoever can intercept the fetch of a key set can make tokens: servers of keys need not prove who they are", "JWKS_RESOLVER_INSECURE_SKIP_VERIFY", true)
	}
	fetcher, err := s.newFetcher()
	if err != nil {
		return nil, err
	}
	return keysets.New(keysets.Options{
		Handler: s.throttle.Add, Logger: log, Metrics: s.metrics, Get: fetcher.Get, Every: o.Every, Limits: s.o.Limits,
	}), nil
}

// newFetcher makes what fetches URLs that users wrote.
func (s *Server) newFetcher() (*safe.Fetcher, error) {
	o := s.o.KeySets
	roots, err := rootsWith(o.ExtraRoots)
	if err != nil {
		return nil, fmt.Errorf("the roots that servers of keys are trusted by: %w", err)
	}
	base, _ := http.DefaultTransport.(*http.Transport)
	transport := base.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, InsecureSkipVerify: o.Insecure} //nolint:gosec // as the operator says
	transport.MaxResponseHeaderBytes = s.o.Limits.KeySetHeader
	return safe.NewFetcher(safe.FetchOptions{
		Size: s.o.Limits.KeySet, Timeout: jwks.MaxTimeout, Redirects: s.o.Limits.KeySetRedirects, Allow: o.Allow, Block: o.Block, Transport: transport, Proxy: o.Proxy,
	}), nil
}

// rootsWith returns the system's roots and those of a file; nil, which stands for the system's, where there is no file.
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
