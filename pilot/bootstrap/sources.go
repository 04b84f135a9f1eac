package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/aggregate"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

// sources are the places that changes come from, merged into one.
type sources struct {
	*aggregate.Source
	list   []source
	remote *multicluster.Controller // nil: there is no API server to name remote clusters
}

type source struct {
	name     string
	run      func(context.Context) error
	findings func() []diag.Diagnostic // nil: it has none of its own
}

// newSources makes them; nothing runs yet. What they bring goes to sink, the whole of it first.
func (s *Server) newSources(sink config.Handler) (*sources, error) {
	files := &meshFiles{
		logger: s.o.Logger.With("scope", "model"), mesh: s.o.MeshConfig, networks: s.o.MeshNetworks,
		key: s.world.meshKey(), limit: s.o.Limits.MeshConfig, poll: cmp.Or(s.o.Poll, time.Second),
	}
	if s.o.ConfigDir == "" && s.o.Client == nil {
		return nil, errors.New("no source of configuration: give --configDir a directory of YAML, or --kubeconfig a cluster")
	}
	all := &sources{Source: aggregate.New(aggregate.Options{Sink: sink})}
	// Those that are added first take precedence.
	hidden := kinds.Key{}
	if files.present() {
		files.handler = all.From(all.Add("mesh files"))
		all.list = append(all.list, source{name: "mesh files", run: files.run})
		hidden = files.key // the files are the mesh's configuration, not a ConfigMap
	}
	if s.o.ConfigDir != "" {
		d, err := file.New(file.Options{
			Dir: s.o.ConfigDir, Handler: without(hidden, all.From(all.Add("configuration directory"))), Logger: s.o.Logger.With("scope", "config"),
			Poll: s.o.Poll, NoWatch: s.o.NoWatch, Limits: s.o.Limits,
		})
		if err != nil {
			return nil, err
		}
		all.list = append(all.list, source{"configuration directory", d.Run, d.Findings})
	}
	if s.o.Client != nil {
		if err := s.addCluster(all, hidden); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// without leaves the changes of one object out.
func without(hidden kinds.Key, h config.Handler) config.Handler {
	return func(changes []kinds.Change) {
		h(slices.DeleteFunc(changes, func(c kinds.Change) bool { return c.Key == hidden }))
	}
}

// serviceKinds are those that services and endpoints are made of.
func serviceKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.Namespace, kinds.Node, kinds.Pod, kinds.Service, kinds.EndpointSlice}
}

// addCluster adds the own cluster: its services, the mesh configuration, where no directory holds it the configuration, and the remote clusters that its
// Secrets name.
func (s *Server) addCluster(all *sources, hidden kinds.Key) error {
	logger := s.o.Logger.With("scope", "kube")
	add := func(name string, o crd.Options) error {
		o.Client, o.Logger, o.Metrics, o.Limits = s.o.Client, logger, s.metrics, s.o.Limits
		k, err := crd.New(o)
		if err == nil {
			all.list = append(all.list, source{name, k.Run, k.Findings})
		}
		return err
	}
	read := slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool {
		service := slices.Contains(serviceKinds(), k)
		return k == kinds.Secret || // nothing that is translated names one
			s.o.NoServices && service && k != kinds.Namespace || s.o.ConfigDir != "" && !service && k != kinds.ConfigMap
	})
	maps := []string{meshName(s.o)}
	if s.o.SharedMesh != "" {
		maps = append(maps, s.o.SharedMesh)
	}
	err := add("API server", crd.Options{
		Kinds: read, Handler: without(hidden, all.From(all.Add("API server"))),
		Only: map[*kinds.Kind]crd.Selection{kinds.ConfigMap: {Namespace: s.o.Namespace, Names: maps}},
	})
	if err != nil {
		return err
	}

	secrets := crd.Selection{Namespace: s.o.Namespace, Labels: multicluster.Label + "=" + multicluster.LabelValue}
	all.remote = multicluster.New(multicluster.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Handler: all.From(all.Add("remote clusters")), Timeout: s.o.RemoteTimeout,
		Logger: logger, Metrics: s.metrics,
		Connect: func(cluster string, kubeconfig []byte, h config.Handler) (multicluster.Source, error) {
			client, err := crd.Remote(kubeconfig, s.o.RemoteClient)
			if err != nil {
				return nil, err
			}
			return crd.New(crd.Options{
				Client: client, Cluster: cluster, Kinds: serviceKinds(), Handler: h, Logger: logger.With("cluster", cluster), Metrics: s.metrics, Limits: s.o.Limits,
			})
		},
	})
	all.list = append(all.list, source{"remote clusters", all.remote.Run, all.remote.Findings})
	return add("remote cluster secrets", crd.Options{Kinds: []*kinds.Kind{kinds.Secret}, Handler: all.remote.Handle, Only: map[*kinds.Kind]crd.Selection{kinds.Secret: secrets}})
}

// findings gives what all of them say is wrong.
func (a *sources) findings() []diag.Diagnostic {
	list := a.Findings()
	for _, s := range a.list {
		if s.findings != nil {
			list = append(list, s.findings()...)
		}
	}
	return list
}

// clusters lists the remote clusters and how they stand.
func (a *sources) clusters() any {
	if a.remote == nil {
		return []multicluster.Cluster{}
	}
	return a.remote.Clusters()
}
