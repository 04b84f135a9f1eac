package telemetry

import (
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// side says whether the workload is the client or the server of calls.
type side = telemetryv1.WorkloadMode

// Values of side.
const (
	client = telemetryv1.WorkloadMode_CLIENT
	server = telemetryv1.WorkloadMode_SERVER
)

// sideOf returns the side of a workload in a direction. A gateway is a client.
func sideOf(d feature.Direction) side {
	if d == feature.Inbound {
		return server
	}
	return client
}

// covers reports whether a mode includes a side.
func covers(m telemetryv1.WorkloadMode, s side) bool {
	return m == telemetryv1.WorkloadMode_CLIENT_AND_SERVER || m == s
}

// log is a provider of access logs, and the expression that selects what is logged, which is empty for all.
type log struct {
	provider   *feature.ExtensionProvider
	expression string
}

// loggingOf returns what is logged on a side, sorted by provider, and whether any provider decides it. Otherwise the
// mesh configuration's own fields do.
//
// A level that names providers replaces those of the previous levels. A level that names none enables or disables the
// last named providers, for this side or by default. They keep the expression with which they were named.
func loggingOf(m *mesh.Config, s feature.Selection, on side) (logs []log, configured bool) {
	scope := m.GetDefaultProviders().GetAccessLogging() // providers that are or may be logged to
	last := scope                                       // providers named last, for any side
	expressions := map[string]string{}                  // expressions of the providers named for this side
	active := map[string]bool{}
	found := false
	for _, p := range scope {
		expressions[p] = ""
	}
	for o := range s.Objects.All {
		entries := spec(o).GetAccessLogging()
		var named []string
		for _, e := range entries {
			found = true
			if covers(e.GetMatch().GetMode(), on) {
				named = append(named, providerNames(e.Providers)...)
			}
		}
		if len(named) > 0 {
			scope = named
		}
		for _, e := range entries {
			names := providerNames(e.Providers)
			explicit := len(names) > 0
			if explicit {
				last = names
			}
			if !covers(e.GetMatch().GetMode(), on) {
				continue
			}
			for _, p := range last {
				_, known := expressions[p]
				active[p] = (explicit || known) && !e.GetDisabled().GetValue()
				if explicit {
					expressions[p] = e.GetFilter().GetExpression()
				}
			}
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(scope))) {
		p := find(s, name)
		if p == nil || p.Config == nil {
			continue
		}
		configured = true
		if active[name] || !found {
			logs = append(logs, log{p, expressions[name]})
		}
	}
	return logs, configured
}

// find returns the provider of a name.
func find(s feature.Selection, name string) *feature.ExtensionProvider {
	for p := range s.Providers.All {
		if p.Name == name {
			return &p
		}
	}
	return nil
}
