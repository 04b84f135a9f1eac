package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

// Sources are the places that changes come from, in order of precedence. A World merges what they bring.
//
// The sink is first called when every source has made its first call, and gets all objects. So nothing is served from
// half of the sources. It is called from the goroutines of the sources, one at a time, while the other sources wait. It
// must not call add, nor the handlers of sources. The getters may be called from anywhere.
type Sources struct {
	o        Options
	world    *World
	sink     config.Handler
	instance string
	metrics  prometheus.Registerer
	turn     sync.Mutex    // held from a call of a source to the return of the sink: one at a time, in order
	whole    chan struct{} // closed when the sink has returned from its first call

	list     []Runner
	dynamic  *configSources           // of configuration; nil only in tests
	services *crd.Source              // of the services of the own cluster; nil if there is no API server
	secrets  *crd.Source              // of the wanted Secrets and ConfigMaps of the own cluster; nil if there is no API server
	remote   *multicluster.Controller // of the services of remote clusters; nil if there is no API server
	remotes  remotes                  // the sources that read remote clusters

	mu      sync.Mutex // guards the fields below
	sources []source
	first   int               // how many of the sources, those in front, are awaited before the others
	heard   func()            // called once, after the sources in front have made their first calls; then nil
	started bool              // the sink was called, or is being called, for the first time
	readers []*crd.Source     // all sources that read the API server of the own cluster
	held    string            // what the first call of the sink waits for besides sources, or empty
	wrong   []diag.Diagnostic // findings about the mesh configuration while held is set
	refused chan struct{}     // has one message at most: held was set
}

// source is one of Sources, by its index.
type source struct {
	name    string
	awaited bool // its first call is
}

// Runner runs one of the places that changes come from.
type Runner struct {
	Name string
	config.Source
}

// newSources makes Sources without any source.
func newSources(o Options, w *World, sink config.Handler) *Sources {
	return &Sources{o: o, world: w, sink: sink, whole: make(chan struct{}), refused: make(chan struct{}, 1)}
}

// NewSources makes the sources that the options name; nothing runs yet. The World merges what they bring, and sink gets
// the changes that it is to commit: first the whole, and then changes. instance is the name by which other control
// planes know this one.
func NewSources(o Options, w *World, instance string, metrics prometheus.Registerer, sink config.Handler) (*Sources, error) {
	if o.ConfigDir == "" && o.Texts == nil && o.Cluster == nil && o.Client == nil && len(o.MeshSources()) == 0 {
		err := errors.New("no source of configuration: give --configDir a directory of YAML, --kubeconfig a cluster, or --meshConfig a file that names configSources")
		return nil, errors.Join(append([]error{err}, o.meshErrors()...)...)
	}
	s := newSources(o, w, sink)
	s.instance, s.metrics = instance, metrics
	s.dynamic = &configSources{to: s, known: make(chan struct{}), used: map[string]string{}}
	if o.Once {
		s.list = append(s.list, Runner{"mesh configuration", refusal{s}})
	}

	// Those that are added first take precedence. The mesh configuration may be in any of the first ones.
	files := &meshFiles{
		logger: o.Logger.With("scope", "model"), paths: map[string]string{"mesh": o.MeshConfig, "meshNetworks": o.MeshNetworks},
		namespace: o.Namespace, limit: o.Limits.MeshConfig,
		watch: watchfile.Options{Poll: o.Poll, NoWatch: o.NoWatch, Logger: o.Logger.With("scope", "model")},
		data:  map[string]string{}, wrong: map[string]error{},
	}
	if files.present() {
		files.handler = s.add("mesh files")
		s.list = append(s.list, Runner{"mesh files", files})
	}
	if o.Texts != nil {
		h := s.add("files")
		d := file.NewTexts(o.Texts, file.Options{Handler: h, Logger: o.Logger.With("scope", "config"), Limits: o.Limits, Vital: o.vital})
		s.list = append(s.list, Runner{"files", d})
	}
	if o.ConfigDir != "" {
		d, err := s.directory(o.ConfigDir, s.add("configuration directory"))
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, Runner{"configuration directory", d})
	}
	if o.Cluster != nil {
		s.addListing()
	}
	if o.Client != nil {
		_, err := s.cluster("mesh configuration", crd.Options{Kinds: []*kinds.Kind{kinds.ConfigMap}, Only: o.meshMaps(), Handler: s.add("API server")})
		if err != nil {
			return nil, err
		}
	}
	s.whenHeard(s.dynamic.begin)
	if o.Client != nil {
		if err := s.addCluster(); err != nil {
			return nil, err
		}
	}
	s.list = append(s.list, Runner{"configuration sources", s.dynamic})
	return s, nil
}

// All returns the sources. Each has to run.
func (s *Sources) All() []Runner { return s.list }

// Add adds a source behind those that are there. start gets the handler of its changes.
func (s *Sources) Add(name string, start func(config.Handler) config.Source) {
	s.list = append(s.list, Runner{name, start(s.add(name))})
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
	return file.New(file.Options{
		Dir: dir, Handler: h, Logger: s.o.Logger.With("scope", "config"), Poll: s.o.Poll, NoWatch: s.o.NoWatch, Limits: s.o.Limits,
		Vital: s.o.vital,
	})
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

// listing is the name of the source that addListing adds.
const listing = "API server"

// addListing adds what was read once of an API server: all kinds at once.
func (s *Sources) addListing() {
	s.list = append(s.list, Runner{listing, listed{s.o.Cluster, s.add(listing)}})
}

// listed is the source of what was read once of an API server.
type listed struct {
	*crd.Listing
	handler config.Handler
}

func (l listed) Run(ctx context.Context) error {
	l.handler(l.Changes())
	<-ctx.Done()
	return nil
}

// ListedKinds returns the kinds that are read of a cluster at once, and of which only some objects: of ConfigMaps the
// mesh configuration, and that of injection, which says the image of proxies. Secrets are read one by one:
// World.AbsentCredentials.
func (o Options) ListedKinds() ([]*kinds.Kind, map[*kinds.Kind]crd.Restriction) {
	only := o.meshMaps()
	maps := only[kinds.ConfigMap]
	maps.Names = append(maps.Names, o.injectorMaps()...)
	only[kinds.ConfigMap] = maps
	return slices.Concat([]*kinds.Kind{kinds.ConfigMap}, serviceKinds(), configKinds()), only
}

// injectorMaps returns the names of the ConfigMaps by which proxies are injected.
func (o Options) injectorMaps() []string {
	names := []string{analysis.InjectorMap}
	if o.Revision != "" && o.Revision != "default" {
		names = append(names, analysis.InjectorMap+"-"+o.Revision)
	}
	return names
}

// vital reports whether a server must not start without a ConfigMap of a file, because it holds, or may hold if its
// name is not known, the mesh configuration or the injection templates.
func (o Options) vital(k kinds.Key) bool {
	return k.Name == "" || o.isMesh(k) || k.Namespace == o.Namespace && slices.Contains(o.injectorMaps(), k.Name)
}

// meshMaps restricts ConfigMaps to those that make up the mesh configuration.
func (o Options) meshMaps() map[*kinds.Kind]crd.Restriction {
	names := []string{meshName(o)}
	if o.SharedMesh != "" {
		names = append(names, o.SharedMesh)
	}
	return map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: o.Namespace, Names: names}}
}

// reader makes a source that reads the own API server.
func (s *Sources) reader(o crd.Options) (*crd.Source, error) {
	o.Client, o.Logger, o.Metrics, o.Limits = s.o.Client, s.o.Logger.With("scope", "kube"), s.metrics, s.o.Limits
	k, err := crd.New(o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = append(s.readers, k)
	return k, nil
}

// Unread names the kinds of the own API server that have not been read yet, sorted. Every one of them keeps HasSynced
// false.
func (s *Sources) Unread() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, k := range s.readers {
		names = append(names, k.Unread()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cluster makes a source of the own API server, which runs with the others.
func (s *Sources) cluster(name string, o crd.Options) (*crd.Source, error) {
	k, err := s.reader(o)
	if err == nil {
		s.list = append(s.list, Runner{name, k})
	}
	return k, err
}

// addCluster adds the services of the own cluster, and the remote clusters that its Secrets name. Its configuration is
// one of the configSources.
func (s *Sources) addCluster() (err error) {
	read := serviceKinds()
	if s.o.NoServices {
		read = []*kinds.Kind{kinds.Namespace}
	}
	if s.services, err = s.cluster("services", crd.Options{Kinds: read, Handler: s.add("services")}); err != nil {
		return err
	}
	if s.secrets, err = s.cluster("wanted secrets", crd.Options{Handler: s.add("wanted secrets")}); err != nil {
		return err
	}
	logger := s.o.Logger.With("scope", "kube")
	secrets := crd.Restriction{Namespace: s.o.Namespace, Labels: multicluster.Label + "=" + multicluster.LabelValue}
	s.remote = multicluster.New(multicluster.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Handler: s.add("remote clusters"), Timeout: s.o.RemoteTimeout,
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
			return &remote{source, cluster, &s.remotes}, nil
		},
	})
	s.list = append(s.list, Runner{"remote clusters", s.remote})
	_, err = s.cluster("remote cluster secrets", crd.Options{
		Kinds: []*kinds.Kind{kinds.Secret}, Handler: s.remote.Handle, Only: map[*kinds.Kind]crd.Restriction{kinds.Secret: secrets},
	})
	return err
}

// wantSecrets replaces the Secrets and ConfigMaps of each cluster that are read for what they hold for TLS. It does not
// wait.
func (s *Sources) wantSecrets(keys []kinds.Key) {
	if s.secrets == nil {
		return
	}
	byCluster := map[string][]kinds.Key{}
	for _, k := range keys {
		byCluster[k.Cluster] = append(byCluster[k.Cluster], k)
	}
	s.secrets.Want(byCluster[""])
	s.remotes.want(byCluster)
}

// missingSecrets returns the Secrets and ConfigMaps that are wanted and that their cluster does not have.
func (s *Sources) missingSecrets() map[kinds.Key]bool {
	all := map[kinds.Key]bool{}
	if s.secrets == nil {
		return all
	}
	for _, o := range append(s.secrets.Missing(), s.remotes.missing()...) {
		all[o] = true
	}
	return all
}

// add puts another source behind all that are there and returns its handler. Before the first call of the sink the
// source is awaited like the others. Later it is not: what it brings first are changes like any.
func (s *Sources) add(name string) config.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.sources)
	s.sources = append(s.sources, source{name: name, awaited: !s.started})
	return func(changes []kinds.Change) { s.take(i, changes) }
}

// whenHeard has fn called once, when every source that is there by now has made its first call. fn may add sources.
func (s *Sources) whenHeard(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.heard = len(s.sources), fn
}

// take merges the changes of source i and calls the sink with the changes of objects in force. While a source is
// awaited it does not call the sink. The first call brings all objects.
func (s *Sources) take(i int, changes []kinds.Change) {
	s.turn.Lock()
	defer s.turn.Unlock()
	changes = s.world.merge(i, changes)
	s.mu.Lock()
	s.sources[i].awaited = false
	started, complete := s.started, !slices.ContainsFunc(s.sources[:s.first], isAwaited)
	s.mu.Unlock()
	switch {
	case started && len(changes) > 0:
		s.hand(changes)
	case started, !complete, !s.usable():
	case s.start():
		s.hand(s.world.loaded())
		close(s.whole)
	}
}

func isAwaited(s source) bool { return s.awaited }

func (s *Sources) hand(changes []kinds.Change) {
	if s.dynamic != nil {
		s.dynamic.compare(changes)
	}
	s.sink(changes)
}

// start calls what whenHeard has named, and notes that the sink is called from now on. It returns false if a source is
// awaited.
func (s *Sources) start() bool {
	s.mu.Lock()
	heard := s.heard
	s.heard = nil
	s.mu.Unlock()
	if heard != nil {
		heard()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = !slices.ContainsFunc(s.sources, isAwaited)
	return s.started
}

// ofFirst returns the object in force of a key, if one of those sources has it that whenHeard awaits; else nil.
func (s *Sources) ofFirst(k kinds.Key) *kinds.Object { return s.world.ofFirst(s.first, k) }

// Awaited names what the first call of the sink waits for: the sources whose first call is awaited, in order of
// precedence, those of whenHeard before others, or a mesh configuration that can be used.
func (s *Sources) Awaited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for i, source := range s.sources {
		if i == s.first && len(names) > 0 {
			break
		}
		if source.awaited {
			names = append(names, source.name)
		}
	}
	if s.held != "" {
		names = append(names, s.held)
	}
	return names
}

// usable reports whether the mesh configuration can be used, at a start.
func (s *Sources) usable() bool {
	read := readMesh(s.o, s.ofFirst, map[string]string{})
	texts := layers(s.o, s.ofFirst, "meshNetworks")
	networks := readNetworks(texts)
	held := ""
	var wrong []diag.Diagnostic
	switch {
	case read.unusable != "":
		held = "a mesh configuration that can be used: " + read.unusable
		wrong = s.o.placed(read.findings, layers(s.o, s.ofFirst, "mesh"), "mesh")
	case networks.unusable != "":
		held = fmt.Sprintf("mesh networks that can be used: the ones in %s have errors", networks.unusable)
		wrong = s.o.placed(networks.findings, texts, "meshNetworks")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.wrong, wrong) {
		logFindings(s.o.Logger.With("scope", "model"), wrong)
	}
	s.held, s.wrong = held, wrong
	if held != "" {
		select {
		case s.refused <- struct{}{}:
		default:
		}
	}
	return held == ""
}

// refusal ends with an error where a server would wait until the mesh configuration can be used.
type refusal struct{ s *Sources }

func (r refusal) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.s.refused:
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return fmt.Errorf("a server that starts is not ready, for it waits for %s", r.s.held)
	}
}

func (refusal) Findings() []diag.Diagnostic { return nil }

// HasSynced reports whether the sink has got, and handled, what every source had that is awaited.
func (s *Sources) HasSynced() bool {
	select {
	case <-s.whole:
		return true
	default:
		return false
	}
}

// Wait blocks until HasSynced, or until ctx ends: then the error names what is awaited.
func (s *Sources) Wait(ctx context.Context) error {
	select {
	case <-s.whole:
		return nil
	case <-ctx.Done():
		if s.HasSynced() {
			return nil
		}
		return fmt.Errorf("wait for sources to sync (%s): %w", strings.Join(s.Awaited(), ", "), ctx.Err())
	}
}

// duplicates returns one warning for each key that several sources have, but for what the source except has besides.
func (s *Sources) duplicates(except string) []diag.Diagnostic {
	s.mu.Lock()
	names := lists.Map(s.sources, func(source source) string { return source.name })
	s.mu.Unlock()
	return s.world.duplicates(names, except)
}

// Findings returns the findings of all sources.
func (s *Sources) Findings() []diag.Diagnostic {
	except := ""
	if s.o.Cluster != nil {
		except = listing // files are meant to replace what the cluster has
	}
	list := s.duplicates(except)
	for _, source := range s.list {
		list = append(list, source.Findings()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(list, s.wrong...)
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

// HasRemote reports whether a Secret names another cluster than the server's own.
func (s *Sources) HasRemote() bool { return s.remote != nil && len(s.remote.Clusters()) > 0 }

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
	case s.services == nil:
		return false
	case cluster == s.o.ClusterID:
		return s.services.Current(k) && s.dynamic.current(k)
	}
	source, ok := s.remote.Source(cluster).(*remote)
	return ok && source.Current(k)
}
