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

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options configure a Source. Address and Handler are required.
type Options struct {
	Address string // host:port of the server, optionally with xds:// in front
	// TLS are MeshConfig's settings. Nil or DISABLE means plaintext. Files are read for each connection.
	TLS      *networkingv1alpha3.ClientTLSSettings
	Workload Files // the server's own workload certificate, for the mode ISTIO_MUTUAL; may be empty
	// Token is a file whose content is sent as bearer token, over TLS only. No token is sent if it is empty or does not
	// exist.
	Token string
	// Compliance limits the TLS of the connection.
	Compliance compliance.Policy
	Kinds      []*kinds.Kind // the Istio kinds to read; nil for all of them
	Node       Node
	Handler    config.Handler
	Logger     *slog.Logger
	Metrics    prometheus.Registerer
	Limits     limits.Limits // limits; the zero value means limits.Default
}

// Backoff of connection attempts. It doubles up to retryMost, with 50 % jitter.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// Node identifies this server to the other one.
type Node struct {
	Name, Namespace string // of the pod
	IP              string
	Domain          string // such as cluster.local
	Revision        string // revision of the control plane
	Version         string // version of the build
}

// Source reads from one server.
type Source struct {
	opts     Options
	dialer   *dialer
	metrics  *metrics
	synced   atomic.Bool
	findings config.Findings

	// The fields below are owned by the Run goroutine.
	types       []*watched
	warnings    []diag.Diagnostic // findings about the options
	serverError *diag.Diagnostic  // current finding about the server, or nil
}

// Scheme is the prefix of addresses in configSources for this package.
const Scheme = "xds://"

// New returns a Source. It does not connect. It fails if the TLS settings cannot be satisfied.
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

// HasSynced reports whether the handler's first call, with the objects of every kind, has returned.
func (s *Source) HasSynced() bool { return s.synced.Load() }

// Findings returns the current findings. The caller must not modify the result.
func (s *Source) Findings() []diag.Diagnostic { return s.findings.Get() }

// Run follows the server until ctx ends, when it returns nil. It is called once.
func (s *Source) Run(ctx context.Context) error {
	s.report()
	wait := retryFirst
	for {
		err := s.follow(ctx)
		s.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the server stops
		}
		if s.whole() { // a server that restarts, or a stream that reached its maximum age, is no error
			wait = retryFirst
			s.opts.Logger.Info("the stream ended, connecting again", "err", err)
		} else {
			s.setServerError("the server cannot be read: "+err.Error()+"; what was read before stays in force",
				"see that the server runs and that this server reaches it; it is tried again")
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

// whole reports whether the current stream has answered for every kind.
func (s *Source) whole() bool { return len(s.unanswered()) == 0 }

// unanswered returns the types that the current stream has not answered for.
func (s *Source) unanswered() []string {
	var urls []string
	for _, w := range s.types {
		if !w.answered {
			urls = append(urls, w.url)
		}
	}
	return urls
}

// hand calls the handler with the changes of one response. The first call has the objects of all kinds.
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
