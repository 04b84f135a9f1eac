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
	first  *aggregate.Source // of those that the mesh configuration may come from, which names the others
	list   []source
	later  *configSources
	remote *multicluster.Controller // nil: there is no API server to name remote clusters
}

type source struct {
	name     string
	run      func(context.Context) error
	findings func() []diag.Diagnostic // nil: it has none of its own
}

// newSources makes them; nothing runs yet. What they bring goes to sink, the whole of it first.
func (s *Server) newSources(sink config.Handler) (*sources, error) {
	if s.o.ConfigDir == "" && s.o.Texts == nil && s.o.Client == nil && len(s.o.MeshSources()) == 0 {
		err := errors.New("no source of configuration: give --configDir a directory of YAML, --kubeconfig a cluster, or --meshConfig a file that names configSources")
		return nil, errors.Join(append([]error{err}, s.o.meshErrors()...)...)
	}
	all := &sources{Source: aggregate.New(sink)}
	all.later = &configSources{server: s, to: all, known: make(chan struct{})}
	all.first = aggregate.New(all.later.after(all.From(all.Add("mesh configuration"))))

	// Those that are added first take precedence.
	files := &meshFiles{
		logger: s.o.Logger.With("scope", "model"), paths: map[string]string{"mesh": s.o.MeshConfig, "meshNetworks": s.o.MeshNetworks},
		namespace: s.o.Namespace, limit: s.o.Limits.MeshConfig, poll: cmp.Or(s.o.Poll, time.Second),
	}
	if files.present() {
		files.handler = all.first.From(all.first.Add("mesh files"))
		all.list = append(all.list, source{name: "mesh files", run: files.run})
	}
	if s.o.Texts != nil {
		h := all.first.From(all.first.Add("files"))
		d := file.NewTexts(s.o.Texts, file.Options{Handler: h, Logger: s.o.Logger.With("scope", "config"), Limits: s.o.Limits})
		all.list = append(all.list, source{"files", d.Run, d.Findings})
	}
	if s.o.ConfigDir != "" {
		d, err := s.directory(s.o.ConfigDir, all.first.From(all.first.Add("configuration directory")))
		if err != nil {
			return nil, err
		}
		all.list = append(all.list, source{"configuration directory", d.Run, d.Findings})
	}
	if s.o.Client != nil {
		if err := s.addCluster(all); err != nil {
			return nil, err
		}
	}
	all.list = append(all.list, source{"configuration sources", all.later.run, all.later.findings})
	return all, nil
}

func (s *Server) directory(dir string, h config.Handler) (*file.Source, error) {
	return file.New(file.Options{Dir: dir, Handler: h, Logger: s.o.Logger.With("scope", "config"), Poll: s.o.Poll, NoWatch: s.o.NoWatch, Limits: s.o.Limits})
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

// remoteKinds are what other clusters contribute to the mesh.
func remoteKinds() []*kinds.Kind { return append(serviceKinds(), kinds.WorkloadEntry) }

// configKinds are those of configuration.
func configKinds() []*kinds.Kind {
	return slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool {
		return k == kinds.Secret || k == kinds.ConfigMap || slices.Contains(serviceKinds(), k) // of Secrets nothing that is translated names one
	})
}

// cluster makes a source of the own API server.
func (s *Server) cluster(o crd.Options) (*crd.Source, error) {
	o.Client, o.Logger, o.Metrics, o.Limits = s.o.Client, s.o.Logger.With("scope", "kube"), s.metrics, s.o.Limits
	return crd.New(o)
}

// addCluster adds the own cluster: the mesh configuration, the services, and the remote clusters that its Secrets name.
// Its configuration is one of the configSources.
func (s *Server) addCluster(all *sources) error {
	add := func(name string, o crd.Options) error {
		k, err := s.cluster(o)
		if err == nil {
			all.list = append(all.list, source{name, k.Run, k.Findings})
		}
		return err
	}
	maps := []string{meshName(s.o)}
	if s.o.SharedMesh != "" {
		maps = append(maps, s.o.SharedMesh)
	}
	err := add("mesh configuration", crd.Options{
		Kinds: []*kinds.Kind{kinds.ConfigMap}, Handler: all.first.From(all.first.Add("API server")),
		Only: map[*kinds.Kind]crd.Selection{kinds.ConfigMap: {Namespace: s.o.Namespace, Names: maps}},
	})
	if err != nil {
		return err
	}
	services := serviceKinds()
	if s.o.NoServices {
		services = []*kinds.Kind{kinds.Namespace}
	}
	if err := add("services", crd.Options{Kinds: services, Handler: all.From(all.Add("services"))}); err != nil {
		return err
	}

	logger := s.o.Logger.With("scope", "kube")
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
				Client: client, Cluster: cluster, Kinds: remoteKinds(), Handler: h, Logger: logger.With("cluster", cluster), Metrics: s.metrics, Limits: s.o.Limits,
			})
		},
	})
	all.list = append(all.list, source{"remote clusters", all.remote.Run, all.remote.Findings})
	return add("remote cluster secrets", crd.Options{Kinds: []*kinds.Kind{kinds.Secret}, Handler: all.remote.Handle, Only: map[*kinds.Kind]crd.Selection{kinds.Secret: secrets}})
}

// awaited names the sources that have not brought all they have yet.
func (a *sources) awaited() []string {
	if names := a.first.Awaited(); len(names) > 0 {
		return names // the others wait for them
	}
	return a.Awaited()
}

// findings returns the findings of all of them.
func (a *sources) findings() []diag.Diagnostic {
	list := append(a.first.Findings(), a.Findings()...)
	for _, s := range a.list {
		if s.findings != nil {
			list = append(list, s.findings()...)
		}
	}
	return list
}

// clusters lists the clusters that are read, the own first, and how they stand.
func (s *Server) clusters() any {
	if s.from.remote == nil {
		return []multicluster.Cluster{}
	}
	own := multicluster.Cluster{ID: s.o.ClusterID, SyncStatus: multicluster.Syncing}
	if s.from.HasSynced() {
		own.SyncStatus = multicluster.Synced
	}
	return append([]multicluster.Cluster{own}, s.from.remote.Clusters()...)
}
