package keysets

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// Options configure KeySets.
type Options struct {
	// Handler gets the key sets that have changed. It is called from several goroutines.
	Handler config.Handler
	Logger  *slog.Logger
	Metrics prometheus.Registerer

	Fetcher jwks.Fetcher

	// Interval is the time between two fetches of a key set. The default is 20 min.
	Interval time.Duration
	Limits   limits.Limits // the zero value means limits.Default
}

// KeySets is the facts.Provider of key sets.
type KeySets struct {
	*poll.Poller[string]
	fetcher         jwks.Fetcher
	fetched, failed prometheus.Counter
}

var _ facts.Provider = (*KeySets)(nil)

// New returns KeySets that fetch nothing yet.
func New(o Options) *KeySets {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(o.Metrics).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	if o.Limits == (limits.Limits{}) {
		o.Limits = limits.Default()
	}
	k := &KeySets{
		fetcher: o.Fetcher,
		fetched: counter("pilot_jwks_resolver_network_fetch_success_total", "Key sets of token issuers that were fetched."),
		failed:  counter("pilot_jwks_resolver_network_fetch_fail_total", "Key sets of token issuers that could not be fetched."),
	}
	k.Poller = poll.New(poll.Options[string]{
		Kind: kinds.JWKS, Handler: o.Handler, Logger: o.Logger, Limits: o.Limits, Ask: k.ask,
		Interval: cmp.Or(o.Interval, 20*time.Minute), MinBackoff: time.Second, MaxBackoff: time.Minute, MaxAge: 7 * 24 * time.Hour,
		MaxNames: o.Limits.KeySets, MaxBytes: o.Limits.KeySetBytes, Size: func(set string) int { return len(set) },
	})
	return k
}

// ask fetches the key set of a jwks.Source and counts the outcome.
func (k *KeySets) ask(ctx context.Context, name string) (string, error) {
	set, err := k.fetch(ctx, name)
	if err != nil {
		k.failed.Inc()
		return "", err
	}
	k.fetched.Inc()
	return set, nil
}

func (k *KeySets) fetch(ctx context.Context, name string) (string, error) {
	remote, err := jwks.ParseSource(name)
	if err != nil {
		return "", err
	}
	set, err := remote.Fetch(ctx, k.fetcher)
	if err != nil {
		return "", err
	}
	text, err := set.Encode()
	return string(text), err
}
