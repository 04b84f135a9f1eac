package bundles

import (
	"context"
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// spiffeBundle is the kind of the facts.
var spiffeBundle = &kinds.Kind{Name: "SpiffeBundle"}

const (
	interval = 5 * time.Minute
	maxAge   = 7 * 24 * time.Hour // the last good bundle is dropped after this time without a successful fetch
)

// Bundles fetches bundles. It is safe for concurrent use.
type Bundles struct {
	*poll.Poller[[]*x509.Certificate]
}

// New returns Bundles that fetch nothing yet. changed is called after a bundle has changed, from any goroutine.
func New(fetcher jwks.Fetcher, changed func(), logger *slog.Logger, l limits.Limits) *Bundles {
	return &Bundles{poll.New(poll.Options[[]*x509.Certificate]{
		Kind: spiffeBundle, Logger: logger, Interval: interval, MinBackoff: time.Second, MaxBackoff: time.Minute, MaxAge: maxAge, Limits: l,
		Handler: func([]kinds.Change) { changed() },
		Ask: func(ctx context.Context, url string) ([]*x509.Certificate, error) {
			text, err := fetcher.Get(ctx, url)
			if err != nil {
				return nil, err
			}
			return Parse(text)
		},
	})}
}

// Want replaces the URLs to fetch. It does not wait.
func (b *Bundles) Want(urls []string) { b.Poller.Want(facts.Needs(urls...)) }

// Roots returns the roots in the last good bundle of a URL, or nil if there is none.
func (b *Bundles) Roots(url string) []*x509.Certificate { return b.Get(url) }

// Failure returns why the last fetch of a URL failed, and since when fetches fail. why is "" if the last fetch
// succeeded.
func (b *Bundles) Failure(url string) (why string, since time.Time) {
	f := b.Failing()[url]
	return f.Why, f.Since
}
