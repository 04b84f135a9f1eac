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

// Options of KeySets.
type Options struct {
	Handler config.Handler // gets the key sets that differ from the last ones; called from several goroutines
	Logger  *slog.Logger
	Metrics prometheus.Registerer

	Fetcher jwks.Fetcher

	Every  time.Duration // how often keys are fetched; 0 is 20 min
	Limits limits.Limits // the zero Limits are limits.Default
}

// KeySets is the facts.Provider of key sets.
type KeySets struct {
	*poll.Poller[string]
	fetcher         jwks.Fetcher
	fetched, failed prometheus.Counter
}

var _ facts.Provider = (*KeySets)(nil)

// New makes KeySets that want nothing.
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
		Every: cmp.Or(o.Every, 20*time.Minute), Retry: time.Second, Longest: time.Minute, Age: 7 * 24 * time.Hour,
		Names: o.Limits.KeySets, Bytes: o.Limits.KeySetBytes, Size: func(set string) int { return len(set) },
	})
	return k
}

// ask fetches the key set of a Source.
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
