package wasm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options configure a Cache.
type Options struct {
	Dir string // folder of the modules
	// Fetch says how modules are fetched. The default of its Size is 64 MiB, and of its Timeout 15 s. New sets its
	// Redirects.
	Fetch safe.FetchOptions
	// Modules is the maximum number of cached modules. The default is 64.
	Modules int
	// MinBackoff is the time before the first retry of a fetch. It doubles with each retry. The default is 0.5 s.
	MinBackoff time.Duration
	Insecure   []string // HOST:PORT of registries without TLS
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Environment variables of an extension's virtual machine that are for the agent.
const (
	variablePrefix     = "ISTIO_META_WASM_"
	pullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET" // credentials in the format of Docker's config.json
	policyVariable     = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	versionVariable    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
)

// Cache stores modules in files. It is safe for concurrent use.
type Cache struct {
	o       Options
	fetcher *safe.Fetcher
	fetches *prometheus.CounterVec
	lookups *prometheus.CounterVec

	mu sync.Mutex
	// files has the path of the file of each module.
	files    *simplelru.LRU[key, string]
	inFlight map[key]*flight // fetches in progress
	// lastGood has, for each extension by name, its last version whose module was available.
	lastGood *simplelru.LRU[string, loaded]
}

// flight is a fetch in progress. Its lock is held by the caller that fetches the module, so that it is fetched once.
type flight struct {
	lock  *semaphore.Weighted
	users int
}

// loaded is an encoded extension whose module is in a file.
type loaded struct {
	file     string
	resource []byte
}

// key identifies a module.
type key struct{ url, sha256, version string }

// New returns a Cache and creates its folder. It removes modules of an earlier agent, whose Envoy has ended too.
func New(o Options) (*Cache, error) {
	if o.Dir == "" {
		return nil, errors.New("wasm: Options.Dir is missing")
	}
	o.Fetch.Size, o.Fetch.Timeout, o.Fetch.Redirects = cmp.Or(o.Fetch.Size, 64<<20), cmp.Or(o.Fetch.Timeout, 15*time.Second), 5
	o.Modules, o.Log = cmp.Or(o.Modules, 64), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MinBackoff = cmp.Or(o.MinBackoff, 500*time.Millisecond)
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("failed to make the folder of Wasm modules: %w", err)
	}
	old, _ := filepath.Glob(filepath.Join(o.Dir, "*.wasm*"))
	for _, name := range old {
		_ = os.Remove(name)
	}
	c := &Cache{
		o: o, inFlight: map[key]*flight{},
		fetcher: safe.NewFetcher(o.Fetch),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_remote_fetch_count", Help: "Fetches of Wasm modules, by result.",
		}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_cache_lookup_count", Help: "Lookups of Wasm modules in the cache, by whether they hit.",
		}, []string{"hit"}),
	}
	var err error
	if c.files, err = simplelru.NewLRU(o.Modules, c.forget); err != nil {
		return nil, err
	}
	if c.lastGood, err = simplelru.NewLRU[string, loaded](o.Modules, nil); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		err = errors.Join(o.Registerer.Register(c.fetches), o.Registerer.Register(c.lookups))
	}
	return c, err
}

// plugin is a Wasm filter for HTTP or for TCP.
type plugin interface {
	proto.Message
	GetConfig() *wasmv3.PluginConfig
}

// forget removes a file, unless another key has it too. The caller holds the lock.
func (c *Cache) forget(_ key, file string) {
	for _, other := range c.files.Values() {
		if other == file {
			return
		}
	}
	_ = os.Remove(file)
}

// Replace takes an encoded TypedExtensionConfig. If its module has a URL, Replace returns the extension with the
// module in a file. It returns other extensions unchanged. If the module, or the local file that an extension names,
// is unavailable, the result is the last good version of the extension or, if there is none, a filter that implements
// the failure policy by allowing or denying all requests. retry then reports that another call may succeed.
func (c *Cache) Replace(ctx context.Context, resource []byte) (result []byte, retry bool, err error) {
	x := &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(resource, x); err != nil {
		return nil, false, fmt.Errorf("failed to decode an extension: %w", err)
	}
	var filter plugin
	h, n := &httpwasmv3.Wasm{}, &networkwasmv3.Wasm{}
	switch {
	case x.GetTypedConfig().MessageIs(h):
		filter = h
	case x.GetTypedConfig().MessageIs(n):
		filter = n
	default:
		return resource, false, nil
	}
	if err := x.GetTypedConfig().UnmarshalTo(filter); err != nil {
		return nil, false, fmt.Errorf("failed to decode extension %s: %w", x.GetName(), err)
	}
	vm := filter.GetConfig().GetVmConfig()
	remote := vm.GetCode().GetRemote()
	if remote == nil {
		if name := vm.GetCode().GetLocal().GetFilename(); name != "" {
			// Envoy would reject the extension, whatever its failure policy is.
			if _, err := os.Stat(name); err != nil {
				result, err = c.fallback(x, filter, fmt.Errorf("extension %s: Wasm module: %w", x.GetName(), err))
				return result, true, err
			}
			c.setLastGood(x.GetName(), loaded{name, bytes.Clone(resource)})
		}
		return resource, false, nil
	}
	variables := vm.GetEnvironmentVariables().GetKeyValues()
	k := key{remote.GetHttpUri().GetUri(), strings.ToLower(remote.GetSha256()), variables[versionVariable]}
	path, err := c.file(ctx, k, variables[policyVariable], variables[pullSecretVariable], remote.GetHttpUri().GetTimeout().AsDuration())
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		result, err = c.fallback(x, filter, fmt.Errorf("extension %s: Wasm module %s: %w", x.GetName(), k.url, err))
		return result, true, err
	}
	for name := range variables {
		if strings.HasPrefix(name, variablePrefix) {
			delete(variables, name)
		}
	}
	file := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	vm.Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: file}}
	result, err = configured(x, filter)
	if err == nil {
		c.setLastGood(x.GetName(), loaded{path, result})
	}
	return result, false, err
}

// setLastGood stores an extension whose module is available, for later versions whose module is not.
func (c *Cache) setLastGood(name string, l loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastGood.Add(name, l)
}

// configured returns the extension x with another configuration, encoded.
func configured(x *corev3.TypedExtensionConfig, config proto.Message) ([]byte, error) {
	if err := x.GetTypedConfig().MarshalFrom(config); err != nil {
		return nil, fmt.Errorf("failed to encode extension %s: %w", x.GetName(), err)
	}
	return proto.Marshal(x)
}

// fallback returns the replacement of an extension whose module is unavailable.
func (c *Cache) fallback(x *corev3.TypedExtensionConfig, filter plugin, reason error) ([]byte, error) {
	c.mu.Lock()
	lastGood, ok := c.lastGood.Get(x.GetName())
	c.mu.Unlock()
	if ok {
		if _, err := os.Stat(lastGood.file); err == nil {
			c.o.Log.Warn("failed to get a Wasm module: the extension's last version stays in force", "err", reason)
			return lastGood.resource, nil
		}
	}
	policy := filter.GetConfig().GetFailurePolicy()
	open := policy == wasmv3.FailurePolicy_FAIL_OPEN ||
		policy == wasmv3.FailurePolicy_UNSPECIFIED && filter.GetConfig().GetFailOpen() //nolint:staticcheck // servers send it
	var rules *rbacv3.RBAC
	outcome := "allowed"
	if !open {
		rules, outcome = &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}, "denied"
	}
	c.o.Log.Error("failed to get a Wasm module: the extension's failure policy is applied", "requests", outcome, "err", reason)
	if _, ok := filter.(*networkwasmv3.Wasm); ok {
		return configured(x, &networkrbacv3.RBAC{StatPrefix: "wasm", Rules: rules})
	}
	return configured(x, &httprbacv3.RBAC{Rules: rules})
}

// maxAttempts is the number of attempts to fetch a module while its server is unavailable.
const maxAttempts = 5

// file returns the path of a module, and fetches the module if needed. A module without a hash is fetched for each
// version of its extension, or always if that has no version, if the pull policy is Always, or if there is no policy
// and the image's tag is latest or missing.
func (c *Cache) file(ctx context.Context, k key, policy, pullSecret string, timeout time.Duration) (string, error) {
	if timeout <= 0 || timeout > 10*c.o.Fetch.Timeout {
		timeout = 10 * c.o.Fetch.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	refetch := k.sha256 == "" && (policy == "Always" || policy != "IfNotPresent" && latest(k.url))
	if !refetch {
		k.version = ""
	}
	always := refetch && k.version == ""
	if file, ok := c.lookup(k); ok && !always {
		c.lookups.WithLabelValues("true").Inc()
		return file, nil
	}
	release, err := c.acquire(ctx, k)
	if err != nil {
		return "", err
	}
	defer release()
	if file, ok := c.lookup(k); ok && !always { // fetched by another caller
		c.lookups.WithLabelValues("true").Inc()
		return file, nil
	}
	c.lookups.WithLabelValues("false").Inc()
	module, err := c.fetch(ctx, k, pullSecret)
	for n := 1; err != nil && n < maxAttempts && temporary(err) && sleep(ctx, c.o.MinBackoff<<(n-1)); n++ {
		c.o.Log.Info("retrying to fetch a Wasm module", "url", k.url, "err", err)
		module, err = c.fetch(ctx, k, pullSecret)
	}
	if err != nil {
		c.fetches.WithLabelValues("failure").Inc()
		return "", err
	}
	c.fetches.WithLabelValues("success").Inc()
	file, err := c.store(k, module)
	if err != nil {
		return "", fmt.Errorf("failed to store the module: %w", err)
	}
	return file, nil
}

// latest reports whether a URL names an image with the tag latest or without a tag.
func latest(url string) bool {
	name, ok := strings.CutPrefix(url, ociScheme)
	name = name[strings.LastIndexByte(name, '/')+1:]
	return ok && (strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@"))
}

// lookup returns the path of a cached module.
func (c *Cache) lookup(k key) (file string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if file, ok = c.files.Get(k); ok {
		_, err := os.Stat(file)
		ok = err == nil
	}
	return file, ok
}

// acquire waits while another caller fetches the module. The caller must call release.
func (c *Cache) acquire(ctx context.Context, k key) (release func(), err error) {
	c.mu.Lock()
	f := c.inFlight[k]
	if f == nil {
		f = &flight{lock: semaphore.NewWeighted(1)}
		c.inFlight[k] = f
	}
	f.users++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.users--; f.users == 0 {
			delete(c.inFlight, k)
		}
	}
	if err := f.lock.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { f.lock.Release(1); leave() }, nil
}

// store writes a module to its file and returns the path.
func (c *Cache) store(k key, module []byte) (string, error) {
	sum := sha256.Sum256(module)
	file, err := filepath.Abs(filepath.Join(c.o.Dir, hex.EncodeToString(sum[:])+".wasm"))
	if err != nil {
		return "", err
	}
	next, err := os.CreateTemp(c.o.Dir, "*.wasm.next")
	if err != nil {
		return "", err
	}
	_, err = next.Write(module)
	if err = errors.Join(err, next.Chmod(0o644), next.Close()); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		_ = os.Remove(next.Name())
		return "", err
	}
	if previous, ok := c.files.Peek(k); ok && previous != file {
		c.files.Remove(k)
	}
	c.files.Add(k, file)
	return file, nil
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
