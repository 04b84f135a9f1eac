package bootstrap

import (
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
)

// KeySets are the options of how the keys of token issuers are fetched, for RequestAuthentications.
type KeySets struct {
	keysets.FetchOptions
	Every  time.Duration     // how often; 0 is 20 min
	Remote catalog.FetchMode // which of server and proxies fetch the keys of a jwksUri
}

// newKeySets makes what fetches URLs that users write, and the keys of token issuers with it.
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
