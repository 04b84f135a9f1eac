// Package extension puts code of users between the filters of proxies: WebAssembly modules, by a WasmPlugin or a
// TrafficExtension, and Lua, by a TrafficExtension. Each phase is a feature of its own, because the filters of phases
// stand at different places among those of other features.
//
// The filter of a module has no more than the name of its configuration, to which proxies subscribe (translate/ecds):
// the agent beside a proxy fetches the module before the proxy hears of it. If that fails, failStrategy says what
// happens to the traffic. Lua stands in the filter itself. A WasmPlugin has the name that Istio gives it, of a
// TrafficExtension that is made from it.
//
//   - extension.go: New, the phases, and how the objects of a phase are selected and ordered.
//   - plugin.go: what a WasmPlugin and a TrafficExtension have in common.
//   - filter.go: the filters, and which chains have them.
//   - module.go: the configuration of a module, that proxies subscribe to.
//   - unsupported.go: findings about fields that have no effect.
package extension
