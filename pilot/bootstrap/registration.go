package bootstrap

import (
	"context"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/autoregistration"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// writers are the means by which registration writes, in addition to the store of each instance.
type writers struct {
	guarded  autoregistration.Store // store of the sweep
	lease    *leader.Lease          // required for the sweep; nil if leader election is disabled
	presence *leader.Presence       // nil unless the server is outside the cluster
}

// newRegistration returns the Controller that registers workloads on their request, and runs it with the server. It
// writes entries to the API server. Without an API server, the entries are an additional source of this process.
func (s *Server) newRegistration(all *ingest.Sources) (*autoregistration.Controller, error) {
	o := autoregistration.Options{
		Instance: s.o.Instance(), World: s.world, Grace: s.o.RegistrationGrace, NoHealth: s.o.NoHealth,
		Authorizer: s.authorizer, OrphanAge: s.o.MaxConnectionAge * 3 / 2,
		Logger: s.o.Logger.With("scope", "autoregistration"), Metrics: s.metrics,
	}
	var by writers
	if s.o.Client == nil {
		all.Add("registered workloads", func(h config.Handler) config.Source {
			memory := autoregistration.NewMemory(h)
			o.Store, by.guarded = memory, memory
			return memory
		})
	} else {
		var err error
		if by, err = s.writeToCluster(&o); err != nil {
			return nil, err
		}
	}
	c := autoregistration.New(o)
	registration := c.Run
	if by.presence != nil {
		s.components.Background("presence", by.presence.Run)
		s.components.Join(by.presence)
		registration = func(ctx context.Context) error {
			if err := by.presence.Wait(ctx); err != nil {
				return nil //nolint:nilerr // the server stops
			}
			return c.Run(ctx)
		}
	}
	s.components.Background("workload registration", registration)
	s.components.Join(by.lease)
	s.components.Background("workload cleanup", func(ctx context.Context) error {
		if err := all.Wait(ctx); err != nil {
			return nil //nolint:nilerr // the server stops
		}
		by.lease.Run(ctx, func(ctx context.Context) { c.Sweep(ctx, by.guarded) })
		return nil
	})
	return c, nil
}

// writeToCluster completes the options of a registration that writes to the server's own cluster. A server outside the
// cluster is never the leader, because it cannot check pods. It sweeps the entries of servers outside the cluster.
func (s *Server) writeToCluster(o *autoregistration.Options) (by writers, err error) {
	store, err := autoregistration.NewKubernetes(s.o.Client)
	if err != nil {
		return by, err
	}
	o.Store, by.guarded = store, store
	leases := leader.Options{
		Client: s.o.Client, Namespace: s.o.Namespace, Name: names.CleanupLease, Revision: s.o.Revision, Identity: o.Instance,
		Logger: s.o.Logger.With("scope", "leader"),
	}
	observer, err := leader.NewObserver(leases)
	if err != nil {
		return by, err
	}
	s.components.Join(observer)
	o.Replicas = instances{s, observer}
	switch {
	case s.o.NoElection:
		return by, nil
	case s.o.PodName == "":
		o.OrphanAge = 0
		by.presence, err = leader.NewPresence(leases)
		return by, err
	}
	if by.lease, err = s.election(s.o.Client, o.Instance).Lease(names.CleanupLease, s.o.Revision); err != nil {
		return by, err
	}
	client := rest.CopyConfig(s.o.Client)
	client.Wrap(by.lease.Guard)
	by.guarded, err = autoregistration.NewKubernetes(client)
	return by, err
}

// instances are the instances of the control plane that register workloads.
type instances struct {
	*Server
	observer *leader.Observer
}

// Gone reports whether an instance has stopped. A pod has stopped if it does not exist while the server's own pod does;
// if that does not exist either, the instances run elsewhere. A server outside the cluster has stopped if its Lease is
// not renewed; without election, every other instance has.
func (s instances) Gone(ctx context.Context, instance string) bool {
	if strings.Contains(instance, ingest.NotAPod) {
		return s.o.NoElection || s.observer.Gone(ctx, instance)
	}
	there := func(pod string) bool {
		return s.world.Object(kinds.Key{Kind: kinds.Pod, Namespace: s.o.Namespace, Name: pod}) != nil
	}
	return !s.o.NoServices && there(s.o.PodName) && !there(instance)
}

// Sweeps reports whether this server may judge the entries of an instance. A server outside the cluster judges its own
// entries, and the entries of servers outside the cluster that are gone. The leader of the pods judges all others.
func (s instances) Sweeps(ctx context.Context, instance string) bool {
	return s.o.NoElection || s.o.PodName != "" ||
		strings.Contains(instance, ingest.NotAPod) && (instance == s.o.Instance() || s.observer.Gone(ctx, instance))
}
