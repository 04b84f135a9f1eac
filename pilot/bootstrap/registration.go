package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/autoregistration"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// cleanupLease is the right to delete WorkloadEntries that were left behind.
const cleanupLease = "istio-workloadentry-cleanup"

// notAPod is what an instance's name has in it if it is not that of a pod: the name of none can.
const notAPod = "_"

// instance gives the name of this replica.
func (s *Server) instance() string { return cmp.Or(s.o.PodName, s.o.Process+notAPod) }

// newRegistration makes what registers the workloads that ask for it, and has it run. Entries are written to the API server; where there is none they are
// held by this process, and are one more source of all.
func (s *Server) newRegistration(all *sources) (*autoregistration.Controller, error) {
	logger := s.o.Logger.With("scope", "autoregistration")
	o := autoregistration.Options{
		Instance: s.instance(), Object: s.world.Object, Objects: s.world.Objects, Grace: s.o.RegistrationGrace, NoHealth: s.o.NoHealth,
		AllowUnauthenticated: s.o.RegisterAnyone || s.o.Client == nil, OrphanAge: s.o.MaxConnectionAge * 3 / 2, Logger: logger, Metrics: s.metrics,
	}
	var lease *leader.Lease
	var guarded autoregistration.Store // what the leader alone may write by
	if s.o.Client == nil {
		memory := autoregistration.NewMemory(all.From(all.Add("registered workloads")))
		all.list = append(all.list, source{name: "registered workloads", run: memory.Run})
		o.Store, guarded = memory, memory
	} else {
		store, err := autoregistration.NewKubernetes(s.o.Client)
		if err != nil {
			return nil, err
		}
		o.Store, guarded = store, store
		if !s.o.NoServices {
			o.Gone = s.gone
		}
		if !s.o.NoElection {
			lease, err = leader.New(leader.Options{
				Client: s.o.Client, Namespace: s.o.Namespace, Name: cleanupLease, Revision: s.o.Revision, Identity: o.Instance, Logger: s.o.Logger.With("scope", "leader"),
			})
			if err != nil {
				return nil, fmt.Errorf("leader election: %w", err)
			}
			client := rest.CopyConfig(s.o.Client)
			client.Wrap(lease.Guard)
			if guarded, err = autoregistration.NewKubernetes(client); err != nil {
				return nil, err
			}
		}
	}
	c := autoregistration.New(o)
	s.components.background("workload registration", c.Run)
	if s.o.Client != nil && !s.o.NoElection && s.o.PodName == "" {
		return c, nil // a guest of the cluster, on somebody's laptop: what it did not make itself is not its to delete
	}
	s.components.background("workload cleanup", func(ctx context.Context) error {
		if err := all.Wait(ctx); err != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		if lease == nil {
			c.Sweep(ctx, guarded)
		} else {
			lease.Run(ctx, func(ctx context.Context) { c.Sweep(ctx, guarded) })
		}
		return nil
	})
	return c, nil
}

// gone tells that an instance does not run any more: its pod is not there. Of one outside a pod nobody knows, nor of any where not even this one's own pod is there:
// then the instances run elsewhere.
func (s *Server) gone(instance string) bool {
	there := func(pod string) bool {
		return s.world.Object(kinds.Key{Kind: kinds.Pod, Namespace: s.o.Namespace, Name: pod}) != nil
	}
	return !strings.Contains(instance, notAPod) && there(s.o.PodName) && !there(instance)
}
