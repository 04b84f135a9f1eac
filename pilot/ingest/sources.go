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

// Sources are the origins of objects, in order of precedence. A World merges their objects.
//
// The sink is first called when every source has made its first call, and then gets all objects. So no snapshot is made
// from an incomplete load. Goroutines of the sources call the sink, one at a time, while the other sources wait. The
// sink must not call add, or the handlers of sources. The getters are safe for concurrent use.
type Sources struct {
	o        Options
	world    *World
	sink     config.Handler
	instance string
	metrics  prometheus.Registerer
	turn     sync.Mutex    // held from the call of a source until the sink returns, to keep the order
	whole    chan struct{} // closed when the first call of the sink has returned

	list     []Runner
	dynamic  *configSources           // sources of configuration; nil only in tests
	services *crd.Source              // services of the server's own cluster; nil without an API server
	secrets  *crd.Source              // wanted Secrets and ConfigMaps of the server's own cluster; nil without an API server
	remote   *multicluster.Controller // services of remote clusters; nil without an API server or kubeconfigs
	remotes  remotes                  // sources that read remote clusters

	mu      sync.Mutex // guards the fields below
	sources []source
	first   int               // number of leading sources that are awaited before the others
	heard   func()            // called once, after the first calls of the leading sources; then nil
	started bool              // the first call of the sink has begun
	readers []*crd.Source     // all sources that read the API server of the server's own cluster
	held    string            // what the first call of the sink waits for besides sources, or empty
	wrong   []diag.Diagnostic // findings about the mesh configuration while held is set
	refused chan struct{}     // capacity 1; receives when held is set
}

// source is the state of one of the sources.
type source struct {
	name    string
	awaited bool // its first call is awaited
}

// Runner is a source with its name.
type Runner struct {
	Name string
	config.Source
}

// newSources makes Sources without any source.
func newSources(o Options, w *World, sink config.Handler) *Sources {
	return &Sources{o: o, world: w, sink: sink, whole: make(chan struct{}), refused: make(chan struct{}, 1)}
}

// NewSources makes the sources that the options name. It does not run them. The World merges their objects, and sink
// gets the changes to commit, beginning with all objects. instance is the name by which other control planes know this
// one.
func NewSources(o Options, w *World, instance string, metrics prometheus.Registerer, sink config.Handler) (*Sources, error) {
	if o.ConfigDir == "" && o.Texts == nil && o.Cluster == nil && o.Client == nil && len(o.MeshSources()) == 0 {
		err := errors.New(
			"no source of configuration: give --configDir a directory of YAML, --kubeconfig a cluster, " +
				"or --meshConfig a file that names configSources",
		)
		return nil, errors.Join(append([]error{err}, o.meshErrors()...)...)
	}
	s := newSources(o, w, sink)
	s.instance, s.metrics = instance, metrics
	s.dynamic = &configSources{to: s, known: make(chan struct{}), used: map[string]string{}}
	if o.Once {
		s.list = append(s.list, Runner{"mesh configuration", refusal{s}})
	}

	// Sources that are added first take precedence. Any of the first ones may hold the mesh configuration.
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
		_, err := s.cluster(
			"mesh configuration", crd.Options{Kinds: []*kinds.Kind{kinds.ConfigMap}, Only: o.meshMaps(), Handler: s.add("API server")},
		)
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
	if o.Client != nil || o.Kubeconfigs != "" {
		if err := s.addRemotes(); err != nil {
			return nil, err
		}
	}
	s.list = append(s.list, Runner{"configuration sources", s.dynamic})
	return s, nil
}

// All returns the sources. The caller must run each of them.
func (s *Sources) All() []Runner { return s.list }

// Add adds a source with the lowest precedence. start gets the handler for its changes.
func (s *Sources) Add(name string, start func(config.Handler) config.Source) {
	s.list = append(s.list, Runner{name, start(s.add(name))})
}

// Run runs all sources until ctx ends or one of them fails, waits for the others, and returns the error.
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

// without returns a handler that drops the changes of one object.
func without(hidden kinds.Key, h config.Handler) config.Handler {
	return func(changes []kinds.Change) {
		h(slices.DeleteFunc(changes, func(c kinds.Change) bool { return c.Key == hidden }))
	}
}

// serviceKinds are the kinds that services and endpoints are made of.
func serviceKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.Namespace, kinds.Node, kinds.Pod, kinds.Service, kinds.EndpointSlice}
}

// serviceKinds are the kinds that say which services and endpoints a cluster has, and what it exports and imports.
func (o Options) serviceKinds() []*kinds.Kind {
	read := serviceKinds()
	if o.MultiCluster.Discovery {
		read = append(read, kinds.ServiceExport, kinds.ServiceImport)
	}
	return read
}

// remoteKinds are the kinds that are read from remote clusters.
func (o Options) remoteKinds() []*kinds.Kind { return append(o.serviceKinds(), kinds.WorkloadEntry) }

// configKinds are the kinds of configuration.
func (o Options) configKinds() []*kinds.Kind {
	return slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool {
		// Secrets and ConfigMaps are read one by one; see wantSecrets.
		return k == kinds.Secret || k == kinds.ConfigMap || k.IsMultiCluster() || k.IsAlpha() && !o.AlphaGatewayAPI ||
			slices.Contains(serviceKinds(), k)
	})
}

// listing is the name of the source that addListing adds.
const listing = "API server"

// addListing adds the objects that were listed once from an API server, of all kinds.
func (s *Sources) addListing() {
	s.list = append(s.list, Runner{listing, listed{s.o.Cluster, s.add(listing)}})
}

// listed is the source of objects that were listed once from an API server.
type listed struct {
	*crd.Listing
	handler config.Handler
}

func (l listed) Run(ctx context.Context) error {
	l.handler(l.Changes())
	<-ctx.Done()
	return nil
}

// ListedKinds returns the kinds that are listed from a cluster, and restrictions for some of them. ConfigMaps are
// restricted to the mesh configuration and the injection configuration, which has the image of proxies. Secrets are
// read one by one; see World.AbsentCredentials.
func (o Options) ListedKinds() ([]*kinds.Kind, map[*kinds.Kind]crd.Restriction) {
	only := o.meshMaps()
	maps := only[kinds.ConfigMap]
	maps.Names = append(maps.Names, o.injectorMaps()...)
	only[kinds.ConfigMap] = maps
	return slices.Concat([]*kinds.Kind{kinds.ConfigMap}, o.serviceKinds(), o.configKinds()), only
}

// injectorMaps returns the names of the ConfigMaps that configure injection.
func (o Options) injectorMaps() []string {
	names := []string{analysis.InjectorMap}
	if o.Revision != "" && o.Revision != "default" {
		names = append(names, analysis.InjectorMap+"-"+o.Revision)
	}
	return names
}

// vital reports whether a server must not start without a ConfigMap of a file, because the ConfigMap holds the mesh
// configuration or the injection templates. A ConfigMap of unknown name may hold them.
func (o Options) vital(k kinds.Key) bool {
	return k.Name == "" || o.isMesh(k) || k.Namespace == o.Namespace && slices.Contains(o.injectorMaps(), k.Name)
}

// meshMaps restricts ConfigMaps to the ones with the mesh configuration.
func (o Options) meshMaps() map[*kinds.Kind]crd.Restriction {
	names := []string{meshName(o)}
	if o.SharedMesh != "" {
		names = append(names, o.SharedMesh)
	}
	return map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: o.Namespace, Names: names}}
}

// reader makes a source that reads the API server of the server's own cluster.
func (s *Sources) reader(o crd.Options) (*crd.Source, error) {
	o.Client, o.Logger, o.Metrics, o.Limits = s.o.Client, s.o.Logger.With("scope", "kube"), s.metrics, s.o.Limits
	o.Namespaces, o.Writes = s.o.Namespaces(), s.o.Writes
	k, err := crd.New(o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = append(s.readers, k)
	return k, nil
}

// Unread returns the kinds that have not been read yet from the API server of the server's own cluster, sorted.
// HasSynced is false while there are any.
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

// cluster makes a source of the API server of the server's own cluster, and adds it to the sources to run.
func (s *Sources) cluster(name string, o crd.Options) (*crd.Source, error) {
	k, err := s.reader(o)
	if err == nil {
		s.list = append(s.list, Runner{name, k})
	}
	return k, err
}

// addCluster adds the services of the server's own cluster. The cluster's configuration is one of the configSources.
func (s *Sources) addCluster() (err error) {
	read := s.o.serviceKinds()
	if s.o.NoServices {
		read = []*kinds.Kind{kinds.Namespace}
	}
	if s.services, err = s.cluster("services", crd.Options{Kinds: read, Handler: s.add("services")}); err != nil {
		return err
	}
	s.secrets, err = s.cluster("wanted secrets", crd.Options{Handler: s.add("wanted secrets")})
	return err
}

// wantSecrets replaces the Secrets and ConfigMaps of each cluster that are read for TLS. It does not wait.
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

// missingSecrets returns the wanted Secrets and ConfigMaps that their clusters do not have.
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

// add adds a source with the lowest precedence and returns its handler. Until the first call of the sink, the sink
// waits for the source. Later, the first objects of the source are ordinary changes.
func (s *Sources) add(name string) config.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.sources)
	s.sources = append(s.sources, source{name: name, awaited: !s.started})
	return func(changes []kinds.Change) { s.take(i, changes) }
}

// whenHeard calls fn once, when every source added so far has made its first call. fn may add sources.
func (s *Sources) whenHeard(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.heard = len(s.sources), fn
}

// take merges the changes of source i and calls the sink with the changes of objects in force. It does not call the
// sink while a source is awaited. The first call has all objects.
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

// start calls the function of whenHeard, and returns true if the sink may be called from now on. It returns false if a
// source is awaited.
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

// ofFirst returns the object in force for a key if one of the sources that whenHeard awaits has it, or nil.
func (s *Sources) ofFirst(k kinds.Key) *kinds.Object { return s.world.ofFirst(s.first, k) }

// Awaited names what the first call of the sink waits for: the sources whose first call is awaited, in order of
// precedence and the sources of whenHeard before others, or a usable mesh configuration.
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

// usable reports whether the mesh configuration is usable for a start.
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

// refusal is a source that fails when a server would wait for a usable mesh configuration.
type refusal struct{ s *Sources }

func (r refusal) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.s.refused:
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return fmt.Errorf("a server with this configuration does not become ready: it waits for %s", r.s.held)
	}
}

func (refusal) Findings() []diag.Diagnostic { return nil }

// HasSynced reports whether the first call of the sink, with the objects of every awaited source, has returned.
func (s *Sources) HasSynced() bool {
	select {
	case <-s.whole:
		return true
	default:
		return false
	}
}

// Wait blocks until HasSynced, or until ctx ends. Then the error names what is awaited.
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

// duplicates returns a warning for each key that several sources have. It ignores objects of the source except.
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
	} // files are meant to replace the cluster's objects
	list := s.duplicates(except)
	for _, source := range s.list {
		list = append(list, source.Findings()...)
	}
	if d, wrong := s.watched(); wrong {
		list = append(list, d)
	}
	list = append(list, s.o.ignored()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(list, s.wrong...)
}

// Clusters returns the clusters that are read, the server's own first, and their state.
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

// HasRemote reports whether a Secret or a file names a remote cluster.
func (s *Sources) HasRemote() bool { return s.remote != nil && len(s.remote.Clusters()) > 0 }

// Lacks reports whether a Secret or a file names the cluster and the cluster has not been read yet.
func (s *Sources) Lacks(cluster string) bool { return s.remote != nil && s.remote.Lacks(cluster) }

// Kubeconfig returns the kubeconfig of a remote cluster, or nil if nothing names the cluster. The caller must not
// modify it.
func (s *Sources) Kubeconfig(cluster string) []byte {
	if s.remote == nil {
		return nil
	}
	return s.remote.Kubeconfig(cluster)
}

// Current reports whether the objects of a kind from a cluster, given by ID, are up to date. Objects of files and of
// other control planes always are.
func (s *Sources) Current(cluster string, k *kinds.Kind) bool {
	switch {
	case cluster == s.o.ClusterID:
		return s.services != nil && s.services.Current(k) && s.dynamic.current(k)
	case s.remote == nil:
		return false
	}
	source, ok := s.remote.Source(cluster).(*remote)
	return ok && source.Current(k)
}
