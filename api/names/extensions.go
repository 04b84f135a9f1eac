package names

// wasmPluginSuffix ends the names that WasmPlugins get as TrafficExtensions. No object can have such a name, so
// WasmPlugins and TrafficExtensions never share one.
const wasmPluginSuffix = "~istio-translated-wasmplugin"

// Extension returns the name of a WasmPlugin or a TrafficExtension as a TrafficExtension.
func Extension(name string, wasmPlugin bool) string {
	if wasmPlugin {
		return name + wasmPluginSuffix
	}
	return name
}

// ExtensionFilter returns the name of the filter of a TrafficExtension, and of the filter's configuration.
func ExtensionFilter(namespace, name string) string {
	return "extensions.istio.io/trafficextension/" + namespace + "." + name
}
