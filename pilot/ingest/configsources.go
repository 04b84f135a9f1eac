package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/mcp"
)

// Where MeshConfig's configSources may be, beside mcp.Scheme.
const (
	filesScheme      = "fs://"
	KubernetesScheme = "k8s://" // the own cluster
)

// workloadToken is where a pod has the token of its ServiceAccount that is meant for control planes.
const workloadToken = "/var/run/secrets/tokens/istio-token"

// configSources are the sources of configuration that the mesh configuration names; where it names none, the own
// cluster's, unless a directory is given. They are made once the mesh configuration is known, and stay as they are: a
// list that changes takes effect when the server starts again.
type configSources struct {
	to    *Sources
	known chan struct{} // closed when list and err are final

	list []Runner
	own  *crd.Source // of the own cluster's configuration; nil: it is not read
	err  error

	inForce []*meshv1alpha1.ConfigSource
	used    map[string]string // the last text of each ConfigMap and file that was used

	mu      sync.Mutex
	changed bool // the mesh configuration names other sources than inForce
}

// MeshSources returns the addresses of the configSources that the mesh configuration file names.
func (o Options) MeshSources() []string {
	if o.MeshConfig == "" {
		return nil
	}
	text, err := safe.ReadBounded(o.MeshConfig, o.Limits.MeshConfig)
	if err != nil {
		return nil // its source reports that
	}
	c, _ := mesh.Salvage(mesh.Default(), o.MeshConfig, text)
	if c == nil {
		return nil
	}
	return lists.Map(c.GetConfigSources(), func(s *meshv1alpha1.ConfigSource) string { return s.GetAddress() })
}

// meshErrors returns what is wrong with the mesh configuration file, which may be why it names no configSources.
func (o Options) meshErrors() (list []error) {
	if o.MeshConfig == "" {
		return nil
	}
	text, err := safe.ReadBounded(o.MeshConfig, o.Limits.MeshConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []error{err}
	}
	_, found := mesh.ParseOver(mesh.Default(), o.MeshConfig, text)
	for _, d := range found {
		list = append(list, errors.New(d.String()))
	}
	return list
}

// begin makes the sources that the mesh configuration names. It is called when each source that may have the mesh
// configuration has brought what it has.
func (c *configSources) begin() {
	c.inForce = c.named()
	c.err = c.make()
	close(c.known)
}

// named returns the sources that the mesh configuration names now: that of the sources which begin awaits.
func (c *configSources) named() []*meshv1alpha1.ConfigSource {
	r := readMesh(c.to.o, c.to.ofFirst, c.used)
	if r.unusable != "" {
		return c.inForce
	}
	return r.config.GetConfigSources()
}

// compare notes whether the mesh configuration names other sources after some changes than those that were made.
func (c *configSources) compare(changes []kinds.Change) {
	if !slices.ContainsFunc(changes, func(ch kinds.Change) bool { return c.to.o.isMesh(ch.Key) }) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = !slices.EqualFunc(c.inForce, c.named(), func(a, b *meshv1alpha1.ConfigSource) bool { return proto.Equal(a, b) })
}

func (c *configSources) make() error {
	if c.to.o.Cluster != nil {
		return nil // all that is looked at was read
	}
	if len(c.inForce) == 0 && c.to.o.ConfigDir == "" && c.to.o.Texts == nil {
		return c.add("the configuration", &meshv1alpha1.ConfigSource{Address: KubernetesScheme})
	}
	for i, s := range c.inForce {
		if first := slices.IndexFunc(c.inForce, func(o *meshv1alpha1.ConfigSource) bool { return o.GetAddress() == s.GetAddress() }); first < i {
			return fmt.Errorf("MeshConfig configSources[%d]: address %q is that of configSources[%d] already: remove one", i, s.GetAddress(), first)
		}
		if err := c.add(fmt.Sprintf("MeshConfig configSources[%d]", i), s); err != nil {
			return err
		}
	}
	return nil
}

// add makes one source.
func (c *configSources) add(what string, from *meshv1alpha1.ConfigSource) error {
	s, address := c.to, from.GetAddress()
	name := "configuration of " + address
	scheme, rest, _ := strings.Cut(address, "://")
	scheme += "://"
	handler := s.add(name)
	switch {
	case scheme == mcp.Scheme:
		return c.addServer(what, name, rest, from, handler)
	case scheme == filesScheme && rest != "":
		d, err := s.directory(rest, without(s.o.meshKey(), handler)) // the mesh configuration is known
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		c.list = append(c.list, Runner{name, d})
	case scheme == KubernetesScheme && rest == "" && s.o.Client != nil:
		k, err := s.reader(crd.Options{Kinds: configKinds(), Handler: handler})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		c.own = k
		c.list = append(c.list, Runner{name, k})
	case scheme == KubernetesScheme && rest == "":
		return fmt.Errorf("%s: %s needs a cluster: give --kubeconfig", what, address)
	default:
		return fmt.Errorf("%s: address %q is none of fs:///directory, k8s:// and xds://host:port", what, address)
	}
	return nil
}

// addServer makes the source that another control plane is.
func (c *configSources) addServer(what, name, address string, from *meshv1alpha1.ConfigSource, h config.Handler) error {
	s := c.to
	m, err := mcp.New(mcp.Options{
		Address: address, TLS: from.GetTlsSettings(), Token: workloadToken, Kinds: configKinds(), Handler: h, Logger: s.o.Logger.With("scope", "mcp"),
		Metrics: s.metrics, Limits: s.o.Limits,
		Node: mcp.Node{Name: s.instance, Namespace: s.o.Namespace, Domain: s.o.Domain, Revision: s.o.Revision, Version: s.o.Version},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	c.list = append(c.list, Runner{name, m})
	return nil
}

// Run waits for the mesh configuration and runs the sources that it names.
func (c *configSources) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.known:
	}
	if c.err != nil {
		return c.err
	}
	return runAll(ctx, c.to.o.Logger, c.list)
}

// current reports whether what was read of a kind of the own cluster is all that there is now. What is not read of that
// cluster is.
func (c *configSources) current(k *kinds.Kind) bool {
	select {
	case <-c.known:
		return c.own == nil || c.own.Current(k)
	default:
		return false
	}
}

// Findings returns the findings of the sources, and one if the mesh configuration names others by now.
func (c *configSources) Findings() []diag.Diagnostic {
	select {
	case <-c.known:
	default:
		return nil
	}
	var list []diag.Diagnostic
	c.mu.Lock()
	if c.changed {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "ConfigSource", Object: "MeshConfig", Field: "configSources", Message: "the list has changed: the one before stays in force",
			Fix: "start the server again",
		})
	}
	c.mu.Unlock()
	for _, s := range c.list {
		list = append(list, s.Findings()...)
	}
	return list
}
