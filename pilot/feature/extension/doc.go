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
//
// # Guarantees
//
//   - Every chain has the filters of the real istiod, in its order, and proxies are sent the same configurations for
//     them: [TestIstiod]. The configurations that a listener names exist, in all worlds:
//     [pilot/translate.TestHistories].
//   - Lua and a WebAssembly module change what the selected server answers, in the order of phases and priorities, and
//     no other server. A missing module fails closed, for its own workloads only: [deploy/e2e/traffic.TestExtensions].
//   - Fields without effect are findings: [TestGoldens]. A script is accepted if and only if Envoy's LuaJIT loads it:
//     [TestLuaJITAgrees], [TestEnvoysTakeScripts].
package extension
