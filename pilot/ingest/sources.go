package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/aggregate"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

// Sources are the places that changes come from, merged into one.
type Sources struct {
	*aggregate.Source
	o        Options
	instance string
	metrics  prometheus.Registerer

	first  *aggregate.Source // of those that the mesh configuration may come from, which names all other ones
	list   []Runner
	later  *configSources
	own    *crd.Source              // of the own cluster's services; nil: there is no API server
	single *crd.Source              // of the own cluster: Secrets and ConfigMaps that are wanted one by one; nil: there is no API server
	remote *multicluster.Controller // nil: there is no API server to name remote clusters
	far    remotes                  // what reads these
}

// Runner runs one of the places that changes come from.
type Runner struct {
	Name     string
	Run      func(context.Context) error
	Findings func() []diag.Diagnostic // nil: it has none of its own
}

// NewSources makes the sources that the options name; nothing runs yet. What they bring goes to sink: first the whole,
// and then changes. instance is the name by which other control planes know this one.
func NewSources(o Options, instance string, metrics prometheus.Registerer, sink config.Handler) (*Sources, error) {
	if o.ConfigDir == "" && o.Texts == nil && o.Cluster == nil && o.Client == nil && len(o.MeshSources()) == 0 {
		err := errors.New("no source of configuration: give --configDir a directory of YAML, --kubeconfig a cluster, or --meshConfig a file that names configSources")
		return nil, errors.Join(append([]error{err}, o.meshErrors()...)...)
	}
	s := &Sources{Source: aggregate.New(sink), o: o, instance: instance, metrics: metrics}
	s.later = &configSources{to: s, known: make(chan struct{})}
	s.first = aggregate.New(s.later.after(s.From(s.Source.Add("mesh configuration"))))

	// Those that are added first take precedence.
	files := &meshFiles{
		logger: o.Logger.With("scope", "model"), paths: map[string]string{"mesh": o.MeshConfig, "meshNetworks": o.MeshNetworks},
		namespace: o.Namespace, limit: o.Limits.MeshConfig, poll: cmp.Or(o.Poll, time.Second),
	}
	if files.present() {
		files.handler = s.first.From(s.first.Add("mesh files"))
		s.list = append(s.list, Runner{Name: "mesh files", Run: files.run})
	}
	if o.Texts != nil {
		h := s.first.From(s.first.Add("files"))
		d := file.NewTexts(o.Texts, file.Options{Handler: h, Logger: o.Logger.With("scope", "config"), Limits: o.Limits})
		s.list = append(s.list, Runner{"files", d.Run, d.Findings})
	}
	if o.ConfigDir != "" {
		d, err := s.directory(o.ConfigDir, s.first.From(s.first.Add("configuration directory")))
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, Runner{"configuration directory", d.Run, d.Findings})
	}
	if o.Cluster != nil {
		s.addListing()
	}
	if o.Client != nil {
		if err := s.addCluster(); err != nil {
			return nil, err
		}
	}
	s.list = append(s.list, Runner{"configuration sources", s.later.run, s.later.findings})
	return s, nil
}

// All returns the sources. Each has to run.
func (s *Sources) All() []Runner { return s.list }

// Add adds a source behind those that are there. start gets the handler of its changes.
func (s *Sources) Add(name string, start func(config.Handler) Runner) {
	s.list = append(s.list, start(s.From(s.Source.Add(name))))
}

// Run runs all sources until ctx ends or one of them fails, which is the error, and waits for their end.
func (s *Sources) Run(ctx context.Context) error { return runAll(ctx, s.o.Logger, s.list) }

func runAll(ctx context.Context, logger *slog.Logger, list []Runner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, source := range list {
		running.Add(1)
		safe.Go(logger, source.Name, func() {
			defer running.Done()
			var err error
			if p := safe.Do(source.Name, func() { err = source.Run(ctx) }); p != nil {
				err = p
			}
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil {
				cancel(fmt.Errorf("%s: %w", source.Name, err))
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, ctx.Err()) {
		return err
	}
	return nil
}

func (s *Sources) directory(dir string, h config.Handler) (*file.Source, error) {
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
		return k == kinds.Secret || k == kinds.ConfigMap || slices.Contains(serviceKinds(), k) // Secrets and ConfigMaps are read one by one: wantSecrets
	})
}

// addListing adds what was read once of an API server: all kinds at once.
func (s *Sources) addListing() {
	h := s.first.From(s.first.Add("API server"))
	s.list = append(s.list, Runner{"API server", func(ctx context.Context) error {
		h(s.o.Cluster.Changes())
		<-ctx.Done()
		return nil
	}, s.o.Cluster.Findings})
}

// ListedKinds returns the kinds that are read of a cluster at once, and of which only some objects: of ConfigMaps the
// mesh configuration. Secrets are read one by one: World.AbsentCredentials.
func (o Options) ListedKinds() ([]*kinds.Kind, map[*kinds.Kind]crd.Restriction) {
	names := []string{meshName(o)}
	if o.SharedMesh != "" {
		names = append(names, o.SharedMesh)
	}
	return slices.Concat([]*kinds.Kind{kinds.ConfigMap}, serviceKinds(), configKinds()),
		map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: o.Namespace, Names: names}}
}

// cluster makes a source of the own API server.
func (s *Sources) cluster(o crd.Options) (*crd.Source, error) {
	o.Client, o.Logger, o.Metrics, o.Limits = s.o.Client, s.o.Logger.With("scope", "kube"), s.metrics, s.o.Limits
	return crd.New(o)
}

// addCluster adds the own cluster: the mesh configuration, the services, and the remote clusters that its Secrets name.
// Its configuration is one of the configSources.
func (s *Sources) addCluster() error {
	const services = "services"
	add := func(name string, o crd.Options) error {
		k, err := s.cluster(o)
		if err == nil {
			s.list = append(s.list, Runner{name, k.Run, k.Findings})
		}
		if name == services {
			s.own = k
		}
		return err
	}
	maps := []string{meshName(s.o)}
	if s.o.SharedMesh != "" {
		maps = append(maps, s.o.SharedMesh)
	}
	err := add("mesh configuration", crd.Options{
		Kinds: []*kinds.Kind{kinds.ConfigMap}, Handler: s.first.From(s.first.Add("API server")),
		Only: map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: s.o.Namespace, Names: maps}},
	})
	if err != nil {
		return err
	}
	read := serviceKinds()
	if s.o.NoServices {
		read = []*kinds.Kind{kinds.Namespace}
	}
	if err := add(services, crd.Options{Kinds: read, Handler: s.From(s.Source.Add(services))}); err != nil {
		return err
	}

	if s.single, err = s.cluster(crd.Options{Handler: s.From(s.Source.Add("wanted secrets"))}); err != nil {
		return err
	}
	s.list = append(s.list, Runner{"wanted secrets", s.single.Run, s.single.Findings})

	logger := s.o.Logger.With("scope", "kube")
	secrets := crd.Restriction{Namespace: s.o.Namespace, Labels: multicluster.Label + "=" + multicluster.LabelValue}
	s.remote = multicluster.New(multicluster.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Handler: s.From(s.Source.Add("remote clusters")), Timeout: s.o.RemoteTimeout,
		Logger: logger, Metrics: s.metrics,
		Connect: func(cluster string, kubeconfig []byte, h config.Handler) (config.Source, error) {
			client, err := crd.Remote(kubeconfig, s.o.RemoteClient)
			if err != nil {
				return nil, err
			}
			source, err := crd.New(crd.Options{
				Client: client, Cluster: cluster, Kinds: remoteKinds(), Handler: h, Logger: logger.With("cluster", cluster), Metrics: s.metrics, Limits: s.o.Limits,
			})
			if err != nil {
				return nil, err
			}
			return &remote{source, cluster, &s.far}, nil
		},
	})
	s.list = append(s.list, Runner{"remote clusters", s.remote.Run, s.remote.Findings})
	return add("remote cluster secrets", crd.Options{Kinds: []*kinds.Kind{kinds.Secret}, Handler: s.remote.Handle, Only: map[*kinds.Kind]crd.Restriction{kinds.Secret: secrets}})
}

// wantSecrets replaces the Secrets and ConfigMaps of each cluster that are read for what they hold for TLS. It does not
// wait.
func (s *Sources) wantSecrets(keys []kinds.Key) {
	if s.single == nil {
		return
	}
	byCluster := map[string][]kinds.Key{}
	for _, k := range keys {
		byCluster[k.Cluster] = append(byCluster[k.Cluster], k)
	}
	s.single.Want(byCluster[""])
	s.far.want(byCluster)
}

// missingSecrets returns the Secrets and ConfigMaps that are wanted and that their cluster does not have.
func (s *Sources) missingSecrets() map[kinds.Key]bool {
	all := map[kinds.Key]bool{}
	if s.single == nil {
		return all
	}
	for _, o := range append(s.single.Missing(), s.far.missing()...) {
		all[o] = true
	}
	return all
}

// Awaited names the sources that have not brought all they have yet.
func (s *Sources) Awaited() []string {
	if names := s.first.Awaited(); len(names) > 0 {
		return names // all other sources wait for them
	}
	return s.Source.Awaited()
}

// Findings returns the findings of all sources.
func (s *Sources) Findings() []diag.Diagnostic {
	list := s.Source.Findings()
	if s.o.Cluster == nil { // else files are meant to replace what the cluster has
		list = append(s.first.Findings(), list...)
	}
	for _, source := range s.list {
		if source.Findings != nil {
			list = append(list, source.Findings()...)
		}
	}
	return list
}

// Clusters lists the clusters that are read, the own first, and how they stand.
func (s *Sources) Clusters() []multicluster.Cluster {
	if s.remote == nil {
		return []multicluster.Cluster{}
	}
	own := multicluster.Cluster{ID: s.o.ClusterID, SyncStatus: multicluster.Syncing}
	if s.HasSynced() {
		own.SyncStatus = multicluster.Synced
	}
	return append([]multicluster.Cluster{own}, s.remote.Clusters()...)
}

// Lacks reports whether a Secret names the cluster and the cluster has not been read yet.
func (s *Sources) Lacks(cluster string) bool { return s.remote != nil && s.remote.Lacks(cluster) }

// Kubeconfig returns that of a remote cluster; nil if no Secret names the cluster. It is not to be modified.
func (s *Sources) Kubeconfig(cluster string) []byte {
	if s.remote == nil {
		return nil
	}
	return s.remote.Kubeconfig(cluster)
}

// Current reports whether what was read of a kind of a cluster, by its ID, is all that there is now. What files hold
// is, and what other control planes have last sent.
func (s *Sources) Current(cluster string, k *kinds.Kind) bool {
	switch {
	case s.own == nil:
		return false
	case cluster == s.o.ClusterID:
		return s.own.Current(k) && s.later.current(k)
	}
	source, ok := s.remote.Source(cluster).(*remote)
	return ok && source.Current(k)
}
