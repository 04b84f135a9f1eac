package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// member reports whether the server is a pod of its cluster. One outside the cluster keeps nothing there.
func (o Options) member() bool { return o.Client != nil && o.PodName != "" }

// rootsLease is the right to replace the root of the CA and to hand out the roots. It is istiod's Lease too: where both
// run, one of them does. All revisions have one CA, and so one Lease.
const rootsLease = "istio-namespace-controller-election"

// joinCluster has the cluster hold the CA, and elect who replaces its root and hands out the roots.
func (s *Server) joinCluster(x *secure, o *authority.Options) (err error) {
	client, err := dynamic.NewForConfig(s.o.Client)
	if err != nil {
		return fmt.Errorf("client of the CA's Secret: %w", err)
	}
	if !s.o.NoElection {
		x.lease, err = leader.New(leader.Options{
			Client: s.o.Client, Namespace: s.o.Namespace, Name: rootsLease, Identity: s.o.Instance(), Logger: s.o.Logger.With("scope", "leader"),
		})
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		o.Lead = x.lease.Valid
	}
	if x.publisher, err = s.newPublisher(x, s.o.Client, "", x.lease); err != nil {
		return err
	}
	secret := store.Secret{Client: client, Namespace: s.o.Namespace, Name: store.SelfSigned}
	if s.o.Certificates.Cacerts {
		secret.Name, secret.Earlier = store.Cacerts, store.SelfSigned
	}
	o.Store = &store.Kept{Store: secret, Lead: o.Lead, Now: time.Now}
	return nil
}

// Keys of the ConfigMaps that are handed out. The second one holds the revocation lists of a CA that is plugged in,
// where there are some.
const (
	rootsKey = "root-cert.pem"
	crlKey   = "ca-crl.pem"
)

// newPublisher makes what hands out the roots in a cluster; the server's own is "". It writes only while this server
// has the lease, if there is one.
func (s *Server) newPublisher(x *secure, to *rest.Config, cluster string, lease *leader.Lease) (*trust.Publisher, error) {
	guarded := rest.CopyConfig(to)
	if lease != nil {
		guarded.Wrap(lease.Guard)
	}
	client, err := dynamic.NewForConfig(guarded)
	if err != nil {
		return nil, fmt.Errorf("client of the ConfigMaps with the roots: %w", err)
	}
	logger, name, crlMap := s.o.Logger.With("scope", "ca"), s.o.Certificates.RootsMap, s.o.Certificates.CRLMap
	return trust.New(trust.Options{
		Client: client, Namespaces: func() []string { return s.world.Namespaces(cluster) }, Logger: logger,
		Source: func(h config.Handler) (config.Source, error) {
			return crd.New(crd.Options{
				Client: to, Kinds: []*kinds.Kind{kinds.ConfigMap}, Handler: h, Logger: s.o.Logger.With("scope", "kube"), Metrics: s.metrics, Limits: s.o.Limits,
				Only: map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Names: []string{name, crlMap}}},
			})
		},
		Wanted: func() map[string]trust.Content {
			wanted := map[string]trust.Content{name: {Key: rootsKey, Text: string(x.authority.ServerRoots())}}
			if crl := x.authority.Revoked().Text(); crl != nil {
				wanted[crlMap] = trust.Content{Key: crlKey, Text: string(crl)}
			}
			return wanted
		},
	}), nil
}

// roots hands out the roots of the mesh in the server's own cluster, and tells other parts when they change.
type roots struct{ s *Server }

// rootsObserver is a part that is told when the roots of the CA change.
type rootsObserver interface{ RootsChanged() }

// newRoots returns nil for a server without a certificate.
func (s *Server) newRoots() (Component, error) {
	if s.secure == nil {
		return nil, nil
	}
	return roots{s}, nil
}

func (roots) Name() string { return "certificate roots" }

// Run hands out the roots while this server is elected, until ctx ends.
func (r roots) Run(ctx context.Context) error {
	s, x := r.s, r.s.secure
	safe.Go(s.o.Logger, "changes of the roots", func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-x.authority.Changed():
				for _, part := range s.components.sources {
					if o, ok := part.(rootsObserver); ok {
						o.RootsChanged()
					}
				}
				s.noticeRoots()
			}
		}
	})
	if x.publisher == nil {
		<-ctx.Done()
		return nil
	}
	whileElected(ctx, x.lease, x.publisher.Run)
	return nil
}

// RootsChanged has the roots written to all namespaces.
func (r roots) RootsChanged() {
	if p := r.s.secure.publisher; p != nil {
		p.Wake()
	}
}

// Committed has the roots written to namespaces that a batch may have selected.
func (r roots) Committed(batch []kinds.Change) {
	if slices.ContainsFunc(batch, func(c kinds.Change) bool { return c.Kind == kinds.Namespace || c.Kind == kinds.ConfigMap }) {
		r.RootsChanged()
	}
}

// Findings returns which namespaces do not get the roots.
func (r roots) Findings() []diag.Diagnostic {
	if p := r.s.secure.publisher; p != nil {
		return p.Findings()
	}
	return nil
}
