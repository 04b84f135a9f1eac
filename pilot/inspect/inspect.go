package inspect

import (
	"context"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// idleResources is the memo's limit, in bytes, for idle resources.
const idleResources = 32 << 20

// Inspection is a configuration that was read once and is not served.
type Inspection struct {
	Findings []diag.Diagnostic
	Objects  int
	// Snapshot is nil if a server would refuse to start, for the reason in Refusal.
	Snapshot *snapshot.Snapshot
	Refusal  error

	o          ingest.Options
	features   catalog.List
	world      *ingest.World
	translator *translate.Translator
	sources    []diag.Diagnostic // findings of the sources
	server     *streams          // nil unless a server runs

	paths  map[string]kinds.Key // The keys of objects by path, as it is written in the metadata of resources. It is nil until first used.
	places map[string]string    // results of Where by key and field, so that the file of an object is read once

	clusterIPs map[string]*registry.Service    // Services of the own cluster by their addresses. It is nil until first used.
	byKind     map[*kinds.Kind][]*kinds.Object // accepted objects. It is nil until first used.
}

// Read reads the configuration that o names, for translation with a list of features.
func Read(ctx context.Context, o ingest.Options, features catalog.List) (*Inspection, error) {
	o.Once = true
	stages := catalog.Stages(catalog.StageOptions{
		Domain: o.Domain, Namespace: o.Namespace, Limits: o.Limits, GatewayController: o.GatewayController, GatewayClass: o.GatewayClass,
		MultiCluster: o.MultiCluster, AlphaGatewayAPI: o.AlphaGatewayAPI,
	})
	i := &Inspection{o: o, features: features, world: ingest.New(o,
		ingest.Parts{Stages: stages, Catalog: features, Still: o.Cluster == nil})}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sources *ingest.Sources
	sources, err := ingest.NewSources(o, i.world, o.Instance(), prometheus.NewRegistry(), func(changes []kinds.Change) {
		if ctx.Err() == nil { // later changes are ignored
			s := i.world.Commit(changes, time.Time{})
			if len(sources.Awaited()) == 0 {
				i.Snapshot = s
				cancel()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	err = sources.Run(ctx)
	switch {
	case i.Snapshot != nil:
		i.translator = translate.New(translate.Options{Features: features, Idle: idleResources})
	case err == nil:
		return nil, sources.Wait(ctx)
	default:
		i.Refusal = err
	}
	if err := i.readSecrets(caller); err != nil {
		return nil, err
	}
	i.sources = sources.Findings()
	if i.Findings, err = i.findings(i.sources); err != nil {
		return nil, err
	}
	if err := o.Texts.Refusal(); err != nil {
		i.Snapshot, i.Refusal = nil, err
	}
	i.Objects = len(i.world.Objects())
	return i, nil
}

// readSecrets reads the Secrets of a cluster that are needed, one by one.
func (i *Inspection) readSecrets(ctx context.Context) error {
	if i.o.Cluster == nil || i.Snapshot == nil {
		return nil
	}
	changes, err := i.o.Cluster.Get(ctx, i.world.AbsentCredentials())
	if err != nil {
		return err
	}
	i.Snapshot = i.world.Commit(changes, time.Time{})
	return nil
}

// findings returns all current findings, with those of the sources, sorted by position.
func (i *Inspection) findings(sources []diag.Diagnostic) ([]diag.Diagnostic, error) {
	list := slices.Concat(sources, i.world.Findings(), i.world.Analyze())
	if i.Snapshot != nil {
		found, err := i.patches(i.features)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	list = i.world.Unsuppressed(list)
	slices.SortStableFunc(list, config.ByPosition)
	return list, nil
}

// problems returns the findings about single objects and about what is derived from them.
func (i *Inspection) problems() []diag.Diagnostic {
	return slices.Concat(i.sources, i.world.Findings())
}

// Resources returns what that proxy would be sent, by type URL: all clusters and listeners, and the endpoints and
// routes that these name.
func (i *Inspection) Resources(n *corev3.Node) (map[string][]*envoy.Resource, error) {
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	proxy, err := node.Parse(n)
	if err != nil {
		return nil, err
	}
	return i.resources(i.translator, proxy, i.translator.ResolveCohort(i.Snapshot, proxy), nil)
}

// Statuses returns what the statuses of objects should be.
func (i *Inspection) Statuses() []*derive.Status { return i.world.Statuses() }

// Unreadable returns the findings about objects of a cluster that this user may not read.
func (i *Inspection) Unreadable() []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(i.Findings), func(d diag.Diagnostic) bool { return d.Code != "IST0141" })
}

// objectsOf returns the accepted objects of a kind.
func (i *Inspection) objectsOf(kind *kinds.Kind) []*kinds.Object {
	if i.byKind == nil {
		i.byKind = map[*kinds.Kind][]*kinds.Object{}
		for _, o := range i.world.Objects() {
			i.byKind[o.Kind] = append(i.byKind[o.Kind], o)
		}
	}
	return i.byKind[kind]
}
