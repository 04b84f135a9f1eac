package extension

import (
	"math"
	"slices"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// plugin is what a WasmPlugin and a TrafficExtension have in common.
type plugin struct {
	phase    Phase
	priority int64 // the minimum if none is set
	match    []selector
	wasm     module // nil for a Lua script
	lua      string
}

// selector selects the traffic of a plugin.
type selector interface {
	GetMode() typev1beta1.WorkloadMode
	GetPorts() []*typev1beta1.PortSelector
}

// module holds the fields of a WebAssembly module that both kinds have.
type module interface {
	GetUrl() string
	GetSha256() string
	GetImagePullPolicy() extensionsv1alpha1.PullPolicy
	GetImagePullSecret() string
	GetPluginName() string
	GetFailStrategy() extensionsv1alpha1.FailStrategy
	GetType() extensionsv1alpha1.PluginType
	GetVmConfig() *extensionsv1alpha1.VmConfig
}

func read(o *kinds.Object) plugin {
	p := plugin{priority: math.MinInt64}
	switch s := o.Spec.(type) {
	case *extensionsv1alpha1.WasmPlugin:
		p.phase, p.wasm = Phase(s.Phase), s
		if s.Priority != nil {
			p.priority = int64(s.Priority.Value)
		}
		for _, m := range s.Match {
			p.match = append(p.match, m)
		}
	case *extensionsv1alpha1.TrafficExtension:
		p.phase, p.lua = Phase(s.Phase), s.GetLua().GetInlineCode()
		if w := s.GetWasm(); w != nil {
			p.wasm = w
		}
		if s.Priority != nil {
			p.priority = int64(s.Priority.Value)
		}
		for _, m := range s.Match {
			p.match = append(p.match, m)
		}
	}
	return p
}

// network reports whether the plugin handles connections instead of requests.
func (p plugin) network() bool {
	return p.wasm != nil && p.wasm.GetType() == extensionsv1alpha1.PluginType_NETWORK
}

// handles reports whether the plugin applies to the traffic of a chain. A plugin that does not say so applies to all
// traffic of known services. A gateway is the client of the services behind it.
func (p plugin) handles(c feature.Chain) bool {
	if c.Refused || c.Unknown {
		return false
	}
	mode := typev1beta1.WorkloadMode_CLIENT
	if c.Direction == feature.Inbound {
		mode = typev1beta1.WorkloadMode_SERVER
	}
	return len(p.match) == 0 || slices.ContainsFunc(p.match, func(s selector) bool {
		switch s.GetMode() {
		case mode, typev1beta1.WorkloadMode_UNDEFINED, typev1beta1.WorkloadMode_CLIENT_AND_SERVER:
			return len(s.GetPorts()) == 0 || slices.ContainsFunc(s.GetPorts(), func(p *typev1beta1.PortSelector) bool {
				return p.GetNumber() == c.Port
			})
		}
		return false
	})
}

// ownName returns the name of an object as a TrafficExtension.
func ownName(o *kinds.Object) string { return names.Extension(o.Name, o.Kind == kinds.WasmPlugin) }

// pluginName returns the name of an object's plugin among the plugins of a proxy.
func pluginName(o *kinds.Object) string { return o.Namespace + "." + ownName(o) }

// filterName returns the name of an object's filter, and of its configuration.
func filterName(o *kinds.Object) string { return names.ExtensionFilter(o.Namespace, ownName(o)) }
