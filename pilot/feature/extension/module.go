package extension

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// modules are the filters to which proxies subscribe.
type modules struct{}

// Object implements feature.Extensions. The filter has no configuration of its own.
func (modules) Object(name string, s feature.Selection) *kinds.Object {
	for o := range s.Objects.All {
		if filterName(o) == name && read(o).wasm != nil {
			return o
		}
	}
	return nil
}

// Config implements feature.Extensions.
func (modules) Config(o *kinds.Object) *corev3.TypedExtensionConfig {
	p := read(o)
	c := &corev3.TypedExtensionConfig{Name: filterName(o)}
	if p.network() {
		c.TypedConfig = envoy.Any(&networkwasmv3.Wasm{Config: pluginConfig(o, p.wasm)})
	} else {
		c.TypedConfig = envoy.Any(&httpwasmv3.Wasm{Config: pluginConfig(o, p.wasm)})
	}
	return c
}

// fetchTimeout is the time limit for fetching a module.
const fetchTimeout = 30 * time.Second

// Schemes of the URLs of modules.
const (
	schemeFile = "file://"
	schemeOCI  = "oci://"
)

// Variables that tell the agent how to fetch a module. The agent removes them.
const (
	pullPolicy      = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	pullSecret      = "ISTIO_META_WASM_IMAGE_PULL_SECRET"
	resourceVersion = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
)

// pluginConfig returns how a proxy runs a module. The module's own configuration is JSON, in a string.
func pluginConfig(o *kinds.Object, m module) *wasmv3.PluginConfig {
	c := &wasmv3.PluginConfig{
		Name: pluginName(o), RootId: m.GetPluginName(), Configuration: &anypb.Any{},
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{Runtime: "envoy.wasm.runtime.v8", Code: code(m),
			EnvironmentVariables: environment(o, m)}},
	}
	if s := configuration(o); len(s.GetFields()) > 0 {
		if text, err := json.Marshal(s.AsMap()); err == nil { // decoded JSON can be encoded
			c.Configuration = envoy.Any(wrapperspb.String(string(text)))
		}
	}
	switch m.GetFailStrategy() {
	case extensionsv1alpha1.FailStrategy_FAIL_OPEN:
		c.FailurePolicy = wasmv3.FailurePolicy_FAIL_OPEN
	case extensionsv1alpha1.FailStrategy_FAIL_RELOAD:
		c.FailurePolicy = wasmv3.FailurePolicy_FAIL_RELOAD
	default:
		c.FailurePolicy = wasmv3.FailurePolicy_FAIL_CLOSED
	}
	return c
}

func configuration(o *kinds.Object) *structpb.Struct {
	if p, ok := o.Spec.(*extensionsv1alpha1.WasmPlugin); ok {
		return p.GetPluginConfig()
	}
	return o.Spec.(*extensionsv1alpha1.TrafficExtension).GetWasm().GetPluginConfig()
}

// code returns the source of a module: a file beside the proxy, or a URL that the agent fetches. A URL without a scheme
// names an image.
func code(m module) *corev3.AsyncDataSource {
	url := m.GetUrl()
	if path, ok := strings.CutPrefix(url, schemeFile); ok {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
			Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}},
		}}
	}
	if !strings.Contains(url, "://") {
		url = schemeOCI + url
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{
			Uri: url, Timeout: envoy.Duration(fetchTimeout),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "_"}, // the agent replaces the whole source by a file
		},
		Sha256: m.GetSha256(),
	}}}
}

// environment returns the variables of a module, and the agent's variables for fetching it. The pull Secret of an image
// is named without its content, which is not served.
func environment(o *kinds.Object, m module) *wasmv3.EnvironmentVariables {
	e := &wasmv3.EnvironmentVariables{KeyValues: map[string]string{}}
	for _, v := range m.GetVmConfig().GetEnv() {
		if v.ValueFrom == extensionsv1alpha1.EnvValueSource_HOST {
			e.HostEnvKeys = append(e.HostEnvKeys, v.Name)
		} else {
			e.KeyValues[v.Name] = v.Value
		}
	}
	if policy := m.GetImagePullPolicy(); policy != extensionsv1alpha1.PullPolicy_UNSPECIFIED_POLICY {
		e.KeyValues[pullPolicy] = policy.String()
	}
	if m.GetImagePullSecret() != "" {
		e.KeyValues[pullSecret] = ""
	}
	e.KeyValues[resourceVersion] = version(o)
	return e
}

// version returns a text that changes with an object, so that the agent fetches an image again that may have changed.
// It is the same on all replicas, and also for objects of files.
func version(o *kinds.Object) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec.(proto.Message)) // decoded messages can be encoded
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
