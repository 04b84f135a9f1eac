package mesh

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/durations"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// settingNames are the fields of a ProxyConfig on which the configuration of the proxy depends. Its agent reads the
// others.
var settingNames = []string{"connectionSettings", "gatewayTopology", "privateKeyProvider", "proxyHeaders"}

// Settings returns the fields of a proxy's own ProxyConfig that its xDS configuration depends on, as a text for With.
// Equal settings are equal texts. The text is empty if there are none. Fields and values of newer releases are left
// out.
func Settings(config *structpb.Struct) (string, error) {
	p, err := fieldsOf(config, settingNames...)
	if p == nil || err != nil {
		return "", err
	}
	checkSettings(p, func(path, message, fix string) {
		if err == nil {
			err = fmt.Errorf("%s: %s: %s", path, message, fix)
		}
	})
	if err != nil {
		return "", err
	}
	return canonical(p)
}

// OwnTracing returns the tracing of a proxy's own ProxyConfig, as a text for Tracing. Equal settings are equal texts.
// The text is empty if there is none. The tracer is left out, because it belongs to the proxy's bootstrap
// configuration.
func OwnTracing(config *structpb.Struct) (string, error) {
	p, err := fieldsOf(config, "tracing")
	if p == nil || err != nil || p.Tracing == nil {
		return "", err
	}
	p.Tracing.Tracer, p.Tracing.TlsSettings = nil, nil
	if !(p.Tracing.Sampling >= 0 && p.Tracing.Sampling <= 100) {
		p.Tracing.Sampling = 0
	}
	if proto.Size(p.Tracing) == 0 {
		return "", nil
	}
	return canonical(p)
}

// Tracing returns the tracing of a proxy: its own, as OwnTracing returned it, or else the default of the mesh. If its
// own has no sampling, it has the mesh's sampling.
func (c *Config) Tracing(own string) *meshv1alpha1.Tracing {
	p := &meshv1alpha1.ProxyConfig{}
	if own == "" || proto.Unmarshal([]byte(own), p) != nil {
		return c.GetDefaultConfig().GetTracing()
	}
	if p.Tracing.GetSampling() == 0 {
		p.Tracing.Sampling = c.GetDefaultConfig().GetTracing().GetSampling()
	}
	return p.Tracing
}

// fieldsOf returns a ProxyConfig with the named fields of config, or nil if none of them is set. Fields within them
// that this release does not know are left out.
func fieldsOf(config *structpb.Struct, names ...string) (*meshv1alpha1.ProxyConfig, error) {
	p, own := &meshv1alpha1.ProxyConfig{}, &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, name := range names {
		if v := config.GetFields()[name]; v.GetKind() != nil {
			own.Fields[name] = proto.CloneOf(v)
		}
	}
	if len(own.Fields) == 0 {
		return nil, nil
	}
	durations.Rewrite(p.ProtoReflect().Descriptor(), own)
	json, err := protojson.Marshal(own)
	if err != nil {
		return nil, err
	}
	return p, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(json, p)
}

func canonical(p *meshv1alpha1.ProxyConfig) (string, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	return string(text), err
}

// With returns the configuration for a proxy with settings of its own, in the form of Settings. Each field in them
// replaces the mesh's default. Equal settings share one Config as long as it is referenced.
func (c *Config) With(settings string) *Config {
	if settings == "" {
		return c
	}
	return c.own.with(c, settings)
}

// variants are the Configs derived from one Config, keyed by the settings of proxies.
type variants struct {
	mu sync.Mutex
	by map[string]weak.Pointer[Config]
}

func (o *variants) with(c *Config, settings string) *Config {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.by[settings].Value(); v != nil {
		return v
	}
	p := &meshv1alpha1.ProxyConfig{}
	if proto.Unmarshal([]byte(settings), p) != nil {
		return c
	}
	v := &Config{MeshConfig: proto.CloneOf(c.MeshConfig), Compliance: c.Compliance}
	if v.DefaultConfig == nil {
		v.DefaultConfig = &meshv1alpha1.ProxyConfig{}
	}
	to := v.DefaultConfig.ProtoReflect()
	for _, name := range settingNames {
		fd := to.Descriptor().Fields().ByJSONName(name)
		if p.ProtoReflect().Has(fd) {
			to.Set(fd, p.ProtoReflect().Get(fd))
		}
	}
	lists.Put(&o.by, settings, weak.Make(v))
	runtime.AddCleanup(v, o.forget, settings)
	return v
}

// forget drops a garbage-collected Config, unless it was made again.
func (o *variants) forget(settings string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by[settings].Value() == nil {
		delete(o.by, settings)
	}
}

// checkSettings calls wrong for each value that proxies would reject, with its path in a ProxyConfig.
func checkSettings(p *meshv1alpha1.ProxyConfig, wrong func(path, message, fix string)) {
	duration := func(path string, v *durationpb.Duration, least time.Duration) {
		if v != nil && (v.CheckValid() != nil || v.AsDuration() < least) {
			wrong(path, fmt.Sprintf("%v is too short", v.AsDuration()), fmt.Sprintf("write at least %v", least))
		}
	}
	s := p.GetConnectionSettings()
	duration("connectionSettings.httpIdleTimeout", s.GetHttpIdleTimeout(), 0)
	duration("connectionSettings.httpMaxConnectionDuration", s.GetHttpMaxConnectionDuration(), 0)
	duration("connectionSettings.httpDrainTimeout", s.GetHttpDrainTimeout(), 0)
	duration("connectionSettings.httpRequestTimeout", s.GetHttpRequestTimeout(), 0)
	duration("connectionSettings.httpRequestHeadersTimeout", s.GetHttpRequestHeadersTimeout(), 0)
	duration("connectionSettings.httpStreamIdleTimeout", s.GetHttpStreamIdleTimeout(), 0)
	duration("connectionSettings.httpMaxStreamDuration", s.GetHttpMaxStreamDuration(), 0)
	number := func(path string, v *wrapperspb.Int32Value, least int32) {
		if v != nil && v.Value < least {
			wrong("connectionSettings."+path, fmt.Sprintf("%d is too small", v.Value), fmt.Sprintf("write at least %d", least))
		}
	}
	const window = 1<<16 - 1 // smallest HTTP/2 window that Envoy accepts, in bytes
	number("listenerPerConnectionBufferLimitBytes", s.GetListenerPerConnectionBufferLimitBytes(), 1)
	number("clusterPerConnectionBufferLimitBytes", s.GetClusterPerConnectionBufferLimitBytes(), 1)
	number("httpMaxConcurrentStreams", s.GetHttpMaxConcurrentStreams(), 1)
	number("http2InitialStreamWindowSize", s.GetHttp2InitialStreamWindowSize(), window)
	number("http2InitialConnectionWindowSize", s.GetHttp2InitialConnectionWindowSize(), window)
	if v := p.GetProxyHeaders().GetServer().GetValue(); strings.ContainsAny(v, "\r\n\x00") {
		wrong("proxyHeaders.server.value", "it is no value of a header", "write it without line breaks")
	}
	duration("privateKeyProvider.cryptomb.pollDelay", p.GetPrivateKeyProvider().GetCryptomb().GetPollDelay(), time.Millisecond)
	duration("privateKeyProvider.qat.pollDelay", p.GetPrivateKeyProvider().GetQat().GetPollDelay(), time.Millisecond)
}

// FormatSettings returns settings, or tracing from OwnTracing, as the ProxyConfig that a proxy sends. It returns nil if
// there are none.
func FormatSettings(settings string) *structpb.Struct {
	p, s := &meshv1alpha1.ProxyConfig{}, &structpb.Struct{}
	if settings == "" || proto.Unmarshal([]byte(settings), p) != nil {
		return nil
	}
	json, err := protojson.Marshal(p)
	if err != nil || protojson.Unmarshal(json, s) != nil {
		return nil
	}
	return s
}
