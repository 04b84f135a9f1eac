package wasm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options of a Cache.
type Options struct {
	Dir        string        // of the modules
	Size       int64         // bytes of one module; 0: 64 MiB
	Timeout    time.Duration // of one request; 0: 15 s
	Modules    int           // that are kept; 0: 64
	Insecure   []string      // HOST:PORT of registries that speak no TLS
	Allow      []netip.Prefix
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Variables of a virtual machine that are meant for the agent.
const (
	variablePrefix     = "ISTIO_META_WASM_"
	pullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET" // credentials as Docker's config.json has them
	policyVariable     = "ISTIO_META_WASM_POLICY"
	versionVariable    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
)

// Cache has modules in files. It is safe for concurrent use.
type Cache struct {
	o       Options
	fetcher *safe.Fetcher
	turn    *semaphore.Weighted // held by who fetches: a module is fetched once
	known   *simplelru.LRU[key, string]
	fetches *prometheus.CounterVec
	lookups *prometheus.CounterVec
}

// key is what a module is known by; its value is its file.
type key struct{ url, sha256, version string }

// New returns a Cache, and makes its folder. Modules of an agent before are removed: its Envoy has ended with it.
func New(o Options) (*Cache, error) {
	if o.Dir == "" {
		return nil, errors.New("wasm: there is no folder")
	}
	o.Size, o.Timeout, o.Modules, o.Log = cmp.Or(o.Size, 64<<20), cmp.Or(o.Timeout, 15*time.Second), cmp.Or(o.Modules, 64), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of Wasm modules: %w", err)
	}
	old, _ := filepath.Glob(filepath.Join(o.Dir, "*.wasm*"))
	for _, name := range old {
		_ = os.Remove(name)
	}
	c := &Cache{
		o: o, turn: semaphore.NewWeighted(1), fetcher: safe.NewFetcher(safe.FetchOptions{Size: o.Size, Timeout: o.Timeout, Redirects: 5, Allow: o.Allow}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_wasm_remote_fetch_count", Help: "Wasm modules that were fetched, by result."}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_wasm_cache_lookup_count", Help: "Wasm modules that were looked up, by whether they were there."}, []string{"hit"}),
	}
	var err error
	if c.known, err = simplelru.NewLRU(o.Modules, c.forget); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		err = errors.Join(o.Registerer.Register(c.fetches), o.Registerer.Register(c.lookups))
	}
	return c, err
}

// forget removes a file that no other name leads to.
func (c *Cache) forget(_ key, file string) {
	for _, other := range c.known.Values() {
		if other == file {
			return
		}
	}
	_ = os.Remove(file)
}

// Replace returns an encoded TypedExtensionConfig whose module is a file, for one whose module has a URL. Other
// extensions are returned as they are.
func (c *Cache) Replace(ctx context.Context, resource []byte) ([]byte, error) {
	x := &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(resource, x); err != nil {
		return nil, fmt.Errorf("decode an extension: %w", err)
	}
	var filter interface {
		proto.Message
		GetConfig() *wasmv3.PluginConfig
	}
	h, n := &httpwasmv3.Wasm{}, &networkwasmv3.Wasm{}
	switch {
	case x.GetTypedConfig().MessageIs(h):
		filter = pluginOf{h, func() *wasmv3.PluginConfig { return h.GetConfig() }}
	case x.GetTypedConfig().MessageIs(n):
		filter = pluginOf{n, func() *wasmv3.PluginConfig { return n.GetConfig() }}
	default:
		return resource, nil
	}
	message := filter.(pluginOf).Message
	if err := x.GetTypedConfig().UnmarshalTo(message); err != nil {
		return nil, fmt.Errorf("decode extension %s: %w", x.GetName(), err)
	}
	vm := filter.GetConfig().GetVmConfig()
	remote := vm.GetCode().GetRemote()
	if remote == nil {
		return resource, nil
	}
	variables := vm.GetEnvironmentVariables().GetKeyValues()
	k := key{remote.GetHttpUri().GetUri(), strings.ToLower(remote.GetSha256()), variables[versionVariable]}
	file, err := c.file(ctx, k, variables[policyVariable], variables[pullSecretVariable], remote.GetHttpUri().GetTimeout().AsDuration())
	if err != nil {
		return nil, fmt.Errorf("extension %s: Wasm module %s: %w", x.GetName(), k.url, err)
	}
	for name := range variables {
		if strings.HasPrefix(name, variablePrefix) {
			delete(variables, name)
		}
	}
	vm.Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}}}
	if err := x.GetTypedConfig().MarshalFrom(message); err != nil {
		return nil, fmt.Errorf("encode extension %s: %w", x.GetName(), err)
	}
	return proto.Marshal(x)
}

// pluginOf is a filter that has a plugin.
type pluginOf struct {
	proto.Message
	config func() *wasmv3.PluginConfig
}

// GetConfig returns the plugin.
func (p pluginOf) GetConfig() *wasmv3.PluginConfig { return p.config() }

// file returns the file of a module, and fetches it unless it is there. A policy of Always, or the tag latest without
// any policy, has one without a hash fetched anew.
func (c *Cache) file(ctx context.Context, k key, policy, secret string, timeout time.Duration) (string, error) {
	if timeout <= 0 || timeout > 10*c.o.Timeout {
		timeout = 10 * c.o.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer c.turn.Release(1)
	fresh := k.sha256 == "" && (policy == "Always" || policy != "IfNotPresent" && strings.HasPrefix(k.url, ociScheme) && strings.HasSuffix(k.url, ":latest"))
	file, ok := c.known.Get(k)
	if ok && !fresh {
		if _, err := os.Stat(file); err == nil {
			c.lookups.WithLabelValues("true").Inc()
			return file, nil
		}
	}
	c.lookups.WithLabelValues("false").Inc()
	module, err := c.fetch(ctx, k, secret)
	if err != nil {
		c.fetches.WithLabelValues("failure").Inc()
		return "", err
	}
	c.fetches.WithLabelValues("success").Inc()
	sum := sha256.Sum256(module)
	file = filepath.Join(c.o.Dir, hex.EncodeToString(sum[:])+".wasm")
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	next := file + ".next"
	err = os.WriteFile(next, module, 0o644)
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		_ = os.Remove(next)
		return "", fmt.Errorf("keep it: %w", err)
	}
	if last, ok := c.known.Peek(k); ok && last != file {
		c.known.Remove(k)
	}
	c.known.Add(k, file)
	return file, nil
}
