package bootstrap

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/secureport"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// member reports whether the server is a pod of its cluster. A server outside the cluster does not maintain the
// cluster.
func (o Options) member() bool { return o.Client != nil && o.PodName != "" }

// joinCluster stores the CA in the cluster, and makes the Publisher of its roots. The elected replica rotates and
// publishes the roots.
func (s *Server) joinCluster(x *secure, parts *secureport.Parts) error {
	client, err := dynamic.NewForConfig(s.o.Client)
	if err != nil {
		return fmt.Errorf("client of the CA's Secret: %w", err)
	}
	e := s.election(s.o.Client, s.o.Instance())
	lease, err := e.Lease(names.RootsLease, "") // all revisions share one CA and one Lease
	if err != nil {
		return err
	}
	parts.Lease = lease
	publishing := lease
	if name := s.publishingLease(); name != names.RootsLease {
		x.rotates = lease
		if publishing, err = e.Lease(name, ""); err != nil {
			return err
		}
	}
	if x.publisher, err = s.newPublisher(x, e, "", publishing); err != nil {
		return err
	}
	secret := store.Secret{Client: client, Namespace: s.o.Namespace, Name: store.SelfSigned}
	if s.o.Certificates.Cacerts {
		secret.Name, secret.Earlier = store.Cacerts, store.SelfSigned
	}
	parts.Store = &store.Kept{Store: secret, Lease: lease}
	return nil
}

// publishingLease returns the name of the Lease for publishing the roots.
func (s *Server) publishingLease() string {
	return names.PublishingLease(s.o.Certificates.RootsMap, s.o.Certificates.CRLMap)
}

// Keys of the published ConfigMaps. The second one has the revocation lists of a plugged-in CA, if there are any.
const (
	rootsKey = "root-cert.pem"
	crlKey   = "ca-crl.pem"
)

// newPublisher returns the Publisher of the roots in a cluster. The ID of the server's own cluster is "".
func (s *Server) newPublisher(x *secure, e controllers.Election, cluster string, lease *leader.Lease) (*trust.Publisher, error) {
	bundle := ""
	if s.o.Certificates.TrustBundle {
		bundle = names.TrustBundle(s.o.Certificates.RootsMap)
	}
	return trust.New(trust.Options{
		Client: e.Client, Lease: lease, Cluster: cluster, World: s.world, Logger: s.o.Logger.With("scope", "ca"),
		Namespaces: s.o.Namespaces(), Bundle: bundle,
		Maps: []trust.Map{
			{
				Name: s.o.Certificates.RootsMap, Key: rootsKey, Text: func() []byte { return x.Authority.ServerRoots() },
				Existing: bundle != "", // pods may have mounted it
			},
			{Name: s.o.Certificates.CRLMap, Key: crlKey, Text: func() []byte { return x.Authority.Revoked().Text() }},
		},
	})
}

// roots is the Component that publishes the roots of the mesh in the server's own cluster, and notifies other parts of
// their changes. Every server with a certificate has it.
type roots struct{ s *Server }

// rootsObserver is a part that is notified of changes of the CA's roots.
type rootsObserver interface{ RootsChanged() }

func (roots) Name() string { return "certificate roots" }

// Run publishes the roots while this server is elected, until ctx ends.
func (r roots) Run(ctx context.Context) error {
	safe.Beside(ctx, r.s.o.Logger, "changes of the roots", r.follow, func(ctx context.Context) {
		if p := r.s.secure.publisher; p != nil {
			safe.Beside(ctx, r.s.o.Logger, "election for the root", r.stand, p.Run)
		}
		<-ctx.Done()
	})
	return nil
}

// stand stands for election to replace the root, unless the publisher does with the same Lease.
func (r roots) stand(ctx context.Context) {
	if l := r.s.secure.rotates; l != nil {
		l.Run(ctx, func(ctx context.Context) { <-ctx.Done() })
	}
}

// follow notifies the other parts of changes of the roots until ctx ends.
func (r roots) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.s.secure.Authority.Changed():
			for _, part := range r.s.components.Parts() {
				if o, ok := part.(rootsObserver); ok {
					o.RootsChanged()
				}
			}
			r.s.noticeRoots()
		}
	}
}

// RootsChanged reconciles the ConfigMaps of all namespaces.
func (r roots) RootsChanged() {
	if p := r.s.secure.publisher; p != nil {
		p.NotifyAll()
	}
}

// Committed reconciles the ConfigMaps of namespaces that a commit may have selected.
func (r roots) Committed(batch []kinds.Change) {
	if p := r.s.secure.publisher; p != nil {
		p.Committed(batch)
	}
}

// Findings returns a finding for each namespace without the current roots.
func (r roots) Findings() []diag.Diagnostic {
	if p := r.s.secure.publisher; p != nil {
		return append(r.s.secure.rotates.Findings(), p.Findings()...)
	}
	return nil
}
