package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options are whom to ask and who handles the answers. Address and Handler are needed.
type Options struct {
	Address string // of the server: host:port, with or without xds:// before it
	// TLS is MeshConfig's: absent or DISABLE is plaintext. Files are read anew for each connection.
	TLS      *networkingv1alpha3.ClientTLSSettings
	Workload Files         // the server's own workload certificate, for the mode ISTIO_MUTUAL; empty: there is none
	Token    string        // a file whose content is sent as bearer token, over TLS only; empty, or no such file: none is
	Kinds    []*kinds.Kind // the Istio kinds to read; nil for all of them
	Node     Node
	Handler  config.Handler
	Logger   *slog.Logger
	Metrics  prometheus.Registerer
	Limits   limits.Limits // the zero Limits are limits.Default
}

// How long to wait before the second attempt to connect; twice that before the next, and so on; each wait varies by a
// half to either side.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// Node is who the source is, for the server.
type Node struct {
	Name, Namespace string // of the pod
	IP              string
	Domain          string // cluster.local
	Revision        string // of the control plane
	Version         string // of the build
}

// Source reads from one server.
type Source struct {
	opts     Options
	dialer   *dialer
	metrics  *metrics
	synced   atomic.Bool
	findings config.Findings

	// Of the goroutine in Run.
	types    []*watched
	warnings []diag.Diagnostic // about the options
	trouble  *diag.Diagnostic  // with the server, at present
}

// Scheme is what an address in configSources begins with that is for this package.
const Scheme = "xds://"

// New makes a Source and connects to nothing. What the TLS settings ask for and cannot have is an error.
func New(o Options) (*Source, error) {
	o.Address = strings.TrimPrefix(o.Address, Scheme)
	host, port, err := net.SplitHostPort(o.Address)
	if err == nil && (host == "" || port == "") {
		err = errors.New("it needs a host and a port")
	}
	if err != nil {
		return nil, fmt.Errorf("configSources: address %q: %w", Scheme+o.Address, err)
	}
	o.Limits = cmp.Or(o.Limits, limits.Default())
	if o.Kinds == nil {
		o.Kinds = kinds.All()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Logger = o.Logger.With("name", Scheme+o.Address)
	s := &Source{opts: o, metrics: newMetrics(o.Metrics, Scheme+o.Address)}
	if s.dialer, s.warnings, err = newDialer(o, host); err != nil {
		return nil, fmt.Errorf("configSources: %s%s: tlsSettings.%w", Scheme, o.Address, err)
	}
	for _, k := range o.Kinds {
		if k.Istio {
			s.types = append(s.types, &watched{kind: k, url: k.APIVersion(k.Versions[0]) + "/" + k.Name})
		}
	}
	return s, nil
}

// HasSynced reports whether the handler has got, and handled, the objects of every kind.
func (s *Source) HasSynced() bool { return s.synced.Load() }

// Findings returns what is wrong at present. The caller must not modify it.
func (s *Source) Findings() []diag.Diagnostic { return s.findings.Get() }

// Run follows the server until ctx ends, which is no error. It is called once.
func (s *Source) Run(ctx context.Context) error {
	s.report()
	wait := retryFirst
	for {
		err := s.follow(ctx)
		s.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the server stops
		}
		if s.whole() { // a server that rolls, or a connection that has grown old, is no trouble
			wait = retryFirst
			s.opts.Logger.Info("the stream ended, connecting again", "err", err)
		} else {
			s.found("the server cannot be read: "+err.Error(), "what was read before stays in force")
		}
		for _, w := range s.types {
			w.answered = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, retryMost)
	}
}

// whole reports whether the present stream has answered for every kind.
func (s *Source) whole() bool { return len(s.unanswered()) == 0 }

// unanswered returns the types that the present stream has not answered for.
func (s *Source) unanswered() []string {
	var urls []string
	for _, w := range s.types {
		if !w.answered {
			urls = append(urls, w.url)
		}
	}
	return urls
}

// hand calls the handler with what one response changed; at first nothing, and then everything at once.
func (s *Source) hand(changes []kinds.Change) {
	if s.synced.Load() {
		if len(changes) > 0 {
			config.Sort(changes)
			s.opts.Handler(changes)
		}
		return
	}
	if slices.ContainsFunc(s.types, func(w *watched) bool { return !w.known }) {
		return
	}
	var all []kinds.Change
	for _, w := range s.types {
		for _, e := range w.entries {
			if e.Object != nil {
				all = append(all, kinds.Change{Key: e.Object.Key, Object: e.Object})
			}
		}
	}
	config.Sort(all)
	s.opts.Handler(all)
	s.synced.Store(true)
	s.opts.Logger.Info("config source synced", "objects", len(all))
}
