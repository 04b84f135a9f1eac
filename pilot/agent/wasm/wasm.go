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
	"net/netip"
	"net/url"
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

// Options of a Cache.
type Options struct {
	Dir        string        // of the modules
	Size       int64         // bytes of one module; 0: 64 MiB
	Timeout    time.Duration // of one request; 0: 15 s
	Modules    int           // that are kept; 0: 64
	Retry      time.Duration // before the second try of a fetch, then twice as long each time; 0: 0.5 s
	Insecure   []string      // HOST:PORT of registries that speak no TLS
	Allow      []netip.Prefix
	Proxy      func(*url.URL) (*url.URL, error) // see safe.FetchOptions
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Variables of a virtual machine that are meant for the agent.
const (
	variablePrefix     = "ISTIO_META_WASM_"
	pullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET" // credentials as Docker's config.json has them
	policyVariable     = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	versionVariable    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
)

// Cache has modules in files. It is safe for concurrent use.
type Cache struct {
	o       Options
	fetcher *safe.Fetcher
	fetches *prometheus.CounterVec
	lookups *prometheus.CounterVec

	mu    sync.Mutex
	known *simplelru.LRU[key, string]
	turns map[key]*turn                  // of modules that are asked for now
	last  *simplelru.LRU[string, loaded] // of each extension by its name: the last one that had its module
}

// turn is held by who fetches a module, so that it is fetched once.
type turn struct {
	held  *semaphore.Weighted
	users int
}

// loaded is an extension whose module is a file.
type loaded struct {
	file     string
	resource []byte
}

// key is what a module is known by; its value is its file.
type key struct{ url, sha256, version string }

// New returns a Cache, and makes its folder. Modules of an agent before are removed: its Envoy has ended with it.
func New(o Options) (*Cache, error) {
	if o.Dir == "" {
		return nil, errors.New("wasm: there is no folder")
	}
	o.Size, o.Timeout, o.Modules, o.Log = cmp.Or(o.Size, 64<<20), cmp.Or(o.Timeout, 15*time.Second), cmp.Or(o.Modules, 64), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Retry = cmp.Or(o.Retry, 500*time.Millisecond)
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of Wasm modules: %w", err)
	}
	old, _ := filepath.Glob(filepath.Join(o.Dir, "*.wasm*"))
	for _, name := range old {
		_ = os.Remove(name)
	}
	c := &Cache{
		o: o, turns: map[key]*turn{}, fetcher: safe.NewFetcher(safe.FetchOptions{Size: o.Size, Timeout: o.Timeout, Redirects: 5, Allow: o.Allow, Proxy: o.Proxy}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_wasm_remote_fetch_count", Help: "Wasm modules that were fetched, by result."}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_wasm_cache_lookup_count", Help: "Wasm modules that were looked up, by whether they were there."}, []string{"hit"}),
	}
	var err error
	if c.known, err = simplelru.NewLRU(o.Modules, c.forget); err != nil {
		return nil, err
	}
	if c.last, err = simplelru.NewLRU[string, loaded](o.Modules, nil); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		err = errors.Join(o.Registerer.Register(c.fetches), o.Registerer.Register(c.lookups))
	}
	return c, err
}

// forget removes a file that no other name leads to. The caller holds the lock.
func (c *Cache) forget(_ key, file string) {
	for _, other := range c.known.Values() {
		if other == file {
			return
		}
	}
	_ = os.Remove(file)
}

// Replace returns an encoded TypedExtensionConfig whose module is a file, for one whose module has a URL. Other
// extensions are returned as they are. Where the module, or the file that an extension names itself, cannot be had, the
// result is the extension as it was when that was possible, or else a filter that does what the failure policy says:
// one that lets all through or that refuses all. Then again is set: another call may have the module.
func (c *Cache) Replace(ctx context.Context, resource []byte) (made []byte, again bool, err error) {
	x := &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(resource, x); err != nil {
		return nil, false, fmt.Errorf("decode an extension: %w", err)
	}
	var filter interface {
		proto.Message
		GetConfig() *wasmv3.PluginConfig
	}
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
		return nil, false, fmt.Errorf("decode extension %s: %w", x.GetName(), err)
	}
	vm := filter.GetConfig().GetVmConfig()
	remote := vm.GetCode().GetRemote()
	if remote == nil {
		if name := vm.GetCode().GetLocal().GetFilename(); name != "" {
			if _, err := os.Stat(name); err != nil { // Envoy would reject the extension, whatever its failure policy says
				made, err = c.without(x, filter, fmt.Errorf("extension %s: Wasm module: %w", x.GetName(), err))
				return made, true, err
			}
			c.remember(x.GetName(), loaded{name, bytes.Clone(resource)})
		}
		return resource, false, nil
	}
	variables := vm.GetEnvironmentVariables().GetKeyValues()
	k := key{remote.GetHttpUri().GetUri(), strings.ToLower(remote.GetSha256()), variables[versionVariable]}
	file, err := c.file(ctx, k, variables[policyVariable], variables[pullSecretVariable], remote.GetHttpUri().GetTimeout().AsDuration())
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		made, err = c.without(x, filter, fmt.Errorf("extension %s: Wasm module %s: %w", x.GetName(), k.url, err))
		return made, true, err
	}
	for name := range variables {
		if strings.HasPrefix(name, variablePrefix) {
			delete(variables, name)
		}
	}
	vm.Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}}}
	made, err = configured(x, filter)
	if err == nil {
		c.remember(x.GetName(), loaded{file, made})
	}
	return made, false, err
}

// remember keeps an extension that has its module, for the time when another version of it has none.
func (c *Cache) remember(name string, l loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.Add(name, l)
}

// configured returns an extension, encoded, with a configuration.
func configured(x *corev3.TypedExtensionConfig, config proto.Message) ([]byte, error) {
	if err := x.GetTypedConfig().MarshalFrom(config); err != nil {
		return nil, fmt.Errorf("encode extension %s: %w", x.GetName(), err)
	}
	return proto.Marshal(x)
}

// without returns what takes the place of an extension whose module cannot be had.
func (c *Cache) without(x *corev3.TypedExtensionConfig, filter interface{ GetConfig() *wasmv3.PluginConfig }, reason error) ([]byte, error) {
	c.mu.Lock()
	last, ok := c.last.Get(x.GetName())
	c.mu.Unlock()
	if ok {
		if _, err := os.Stat(last.file); err == nil {
			c.o.Log.Warn("a Wasm module cannot be had: its extension stays as it was", "err", reason)
			return last.resource, nil
		}
	}
	policy := filter.GetConfig().GetFailurePolicy()
	open := policy == wasmv3.FailurePolicy_FAIL_OPEN || policy == wasmv3.FailurePolicy_UNSPECIFIED && filter.GetConfig().GetFailOpen() //nolint:staticcheck // it may be sent
	var rules *rbacv3.RBAC
	result := "let through"
	if !open {
		rules, result = &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}, "refused"
	}
	c.o.Log.Error("a Wasm module cannot be had: requests that its extension is for are "+result, "err", reason)
	if _, ok := filter.(*networkwasmv3.Wasm); ok {
		return configured(x, &networkrbacv3.RBAC{StatPrefix: "wasm", Rules: rules})
	}
	return configured(x, &httprbacv3.RBAC{Rules: rules})
}

// tries is how often a module is asked for while its server is away.
const tries = 5

// file returns the file of a module, and fetches it unless it is there. A policy of Always, or the tag latest or none
// without any policy, has one without a hash fetched for each version of its extension, and each time where that has
// none.
func (c *Cache) file(ctx context.Context, k key, policy, secret string, timeout time.Duration) (string, error) {
	if timeout <= 0 || timeout > 10*c.o.Timeout {
		timeout = 10 * c.o.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	anew := k.sha256 == "" && (policy == "Always" || policy != "IfNotPresent" && latest(k.url))
	if !anew {
		k.version = ""
	}
	fresh := anew && k.version == ""
	if file, ok := c.lookup(k); ok && !fresh {
		c.lookups.WithLabelValues("true").Inc()
		return file, nil
	}
	release, err := c.acquire(ctx, k)
	if err != nil {
		return "", err
	}
	defer release()
	if file, ok := c.lookup(k); ok && !fresh { // fetched meanwhile
		c.lookups.WithLabelValues("true").Inc()
		return file, nil
	}
	c.lookups.WithLabelValues("false").Inc()
	module, err := c.fetch(ctx, k, secret)
	for n := 1; err != nil && n < tries && temporary(err) && sleep(ctx, c.o.Retry<<(n-1)); n++ {
		c.o.Log.Info("a Wasm module is asked for again", "url", k.url, "err", err)
		module, err = c.fetch(ctx, k, secret)
	}
	if err != nil {
		c.fetches.WithLabelValues("failure").Inc()
		return "", err
	}
	c.fetches.WithLabelValues("success").Inc()
	file, err := c.keep(k, module)
	if err != nil {
		return "", fmt.Errorf("keep it: %w", err)
	}
	return file, nil
}

// latest reports whether a URL is of an image that its tag, or the lack of one, says to be the latest.
func latest(url string) bool {
	name, ok := strings.CutPrefix(url, ociScheme)
	name = name[strings.LastIndexByte(name, '/')+1:]
	return ok && (strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@"))
}

// lookup returns the file of a module that is there.
func (c *Cache) lookup(k key) (file string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if file, ok = c.known.Get(k); ok {
		_, err := os.Stat(file)
		ok = err == nil
	}
	return file, ok
}

// acquire waits while another fetches this module.
func (c *Cache) acquire(ctx context.Context, k key) (release func(), err error) {
	c.mu.Lock()
	t := c.turns[k]
	if t == nil {
		t = &turn{held: semaphore.NewWeighted(1)}
		c.turns[k] = t
	}
	t.users++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(c.turns, k)
		}
	}
	if err := t.held.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { t.held.Release(1); leave() }, nil
}

// keep writes a module, and returns its file.
func (c *Cache) keep(k key, module []byte) (string, error) {
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
	if last, ok := c.known.Peek(k); ok && last != file {
		c.known.Remove(k)
	}
	c.known.Add(k, file)
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
