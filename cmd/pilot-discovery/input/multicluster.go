package input

import (
	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
)

// multiCluster returns the settings for the Multi-Cluster Services API. A setting without the one that it requires has
// no effect, as with istiod.
func multiCluster(e *env.Env) clusterset.Options {
	e.OneOf(clusterset.GroupVariable, kinds.ServiceExport.Group)
	requires := func(name string, set, given bool, required string) bool {
		if set && !given {
			e.Warn(name + "=true has no effect without " + required + "=true")
		}
		return set && given
	}
	o := clusterset.Options{
		Discovery: e.Restricted(clusterset.DiscoveryVariable), AutoExport: e.Asked(clusterset.AutoExportVariable),
		Version: e.OneOf(clusterset.VersionVariable, kinds.ServiceExport.Versions...),
	}
	o.Hosts = requires(clusterset.HostsVariable, e.Asked(clusterset.HostsVariable), o.Discovery, clusterset.DiscoveryVariable)
	o.ClusterLocal = requires(clusterset.ClusterLocalVariable, e.Restricted(clusterset.ClusterLocalVariable), o.Hosts,
		clusterset.HostsVariable)
	return o
}
