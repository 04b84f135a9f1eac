// Package extension adds users' code between the filters of proxies: WebAssembly modules, by a WasmPlugin or a
// TrafficExtension, and Lua, by a TrafficExtension. Each phase is a feature of its own, because the filters of phases
// are at different places among those of other features.
//
// The filter of a module only has the name of its configuration, to which proxies subscribe (translate/ecds). The agent
// beside a proxy fetches the module before it passes the configuration on. If that fails, failStrategy decides about
// the traffic. Lua is part of the filter itself. A WasmPlugin gets the name of the TrafficExtension that Istio makes
// from it.
//
// - extension.go: New, the phases, and how the objects of a phase are selected and ordered.
// - plugin.go: what a WasmPlugin and a TrafficExtension have in common.
// - filter.go: the filters, and which chains have them.
// - module.go: the configuration of a module, to which proxies subscribe.
// - unsupported.go: findings about fields without effect.
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
