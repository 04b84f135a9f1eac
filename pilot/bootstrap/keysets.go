package bootstrap

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
)

// KeySets configure the fetching of the keys of token issuers, for RequestAuthentications.
type KeySets struct {
	keysets.FetchOptions
	Every  time.Duration     // interval; 0 for 20 min
	Remote catalog.FetchMode // which of server and proxies fetch the keys of a jwksUri
}

// newKeySets returns the fetcher of URLs in configuration, and the key sets of token issuers.
func (s *Server) newKeySets() (err error) {
	o, log := s.o.KeySets, s.o.Logger.With("scope", "model")
	if s.fetcher, err = keysets.NewFetcher(o.FetchOptions, s.o.Limits, log); err != nil {
		return err
	}
	s.keySets = keysets.New(keysets.Options{
		Handler: s.throttle.Add, Logger: log, Metrics: s.metrics, Fetcher: s.fetcher, Interval: o.Every, Limits: s.o.Limits,
	})
	return nil
}
