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

// Schemes of the addresses in MeshConfig's configSources. The third one is mcp.Scheme.
const (
	filesScheme      = "fs://"
	KubernetesScheme = "k8s://" // the server's own cluster
)

// workloadToken is the path of the pod's ServiceAccount token for control planes.
const workloadToken = "/var/run/secrets/tokens/istio-token"

// configSources are the sources of configuration that the mesh configuration names. If it names none, the source is the
// server's own cluster, unless a directory is given. They are made once, when the mesh configuration is known. A
// changed list takes effect at the next start of the server.
type configSources struct {
	to    *Sources
	known chan struct{} // closed when list and err are final

	list []Runner
	own  *crd.Source // reads configuration from the server's own cluster; nil if no source does
	err  error

	inForce []*meshv1alpha1.ConfigSource
	used    map[string]string // last text in use, by ConfigMap or file

	mu      sync.Mutex
	changed bool // the mesh configuration no longer names the sources in inForce
}

// MeshSources returns the addresses of the configSources that the mesh configuration file names.
func (o Options) MeshSources() []string {
	if o.MeshConfig == "" {
		return nil
	}
	text, err := safe.ReadBounded(o.MeshConfig, o.Limits.MeshConfig)
	if err != nil {
		return nil // the source of the mesh configuration reports the error
	}
	c, _ := mesh.Salvage(mesh.Default(), o.MeshConfig, text)
	if c == nil {
		return nil
	}
	return lists.Map(c.GetConfigSources(), func(s *meshv1alpha1.ConfigSource) string { return s.GetAddress() })
}

// meshErrors returns the errors in the mesh configuration file. They may be the reason why it names no configSources.
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

// begin makes the sources that the mesh configuration names. It is called when every source that may hold the mesh
// configuration has delivered its objects.
func (c *configSources) begin() {
	c.inForce = c.named()
	c.err = c.make()
	close(c.known)
}

// named returns the sources that the mesh configuration names now, as read from the sources that begin awaits.
func (c *configSources) named() []*meshv1alpha1.ConfigSource {
	r := readMesh(c.to.o, c.to.ofFirst, c.used)
	if r.unusable != "" {
		return c.inForce
	}
	return r.config.GetConfigSources()
}

// compare records whether the changes make the mesh configuration name other sources than the ones in force.
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
		return nil // the listing has all objects
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
		k, err := s.reader(crd.Options{Kinds: s.o.unignored(s.o.configKinds()), Handler: handler})
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

// addServer adds another control plane as a source.
func (c *configSources) addServer(what, name, address string, from *meshv1alpha1.ConfigSource, h config.Handler) error {
	s := c.to
	m, err := mcp.New(mcp.Options{
		Address: address, TLS: from.GetTlsSettings(), Token: workloadToken, Kinds: s.o.configKinds(), Handler: h,
		Compliance: s.o.Compliance,
		Logger:     s.o.Logger.With("scope", "mcp"),
		Metrics:    s.metrics, Limits: s.o.Limits,
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

// current reports whether the objects of a kind from the server's own cluster are up to date. A kind that no source
// reads from that cluster is up to date.
func (c *configSources) current(k *kinds.Kind) bool {
	select {
	case <-c.known:
		return c.own == nil || c.own.Current(k)
	default:
		return false
	}
}

// Findings returns the findings of the sources, and a warning if the mesh configuration names different sources now.
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
			Severity: diag.Warning, Code: "ConfigSource", Object: "MeshConfig", Field: "configSources",
			Message: "the list has changed, but the sources of the last start stay in force",
			Fix:     "restart the server",
		})
	}
	c.mu.Unlock()
	for _, s := range c.list {
		list = append(list, s.Findings()...)
	}
	return list
}
