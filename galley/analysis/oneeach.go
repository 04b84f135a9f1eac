package analysis

import (
	networkingv1 "istio.io/api/networking/v1"
	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// oneEach reports Sidecars that have no effect, because only one is in force for each workload, and Telemetries that
// configure the same.
func (a *analysis) oneEach() {
	a.onlyOne(kinds.Sidecar, diag.Error, codeDefaultSidecars, codeSidecars)
	a.onlyOne(kinds.Telemetry, diag.Error, codeDefaultTelemetries, codeTelemetries)
}

// bothConfigure returns what two Telemetries of one workload configure both.
func bothConfigure(x, y *kinds.Object) (list []string) {
	s, t := x.Spec.(*telemetryv1.Telemetry), y.Spec.(*telemetryv1.Telemetry)
	for field, both := range map[string]bool{"accessLogging": len(s.AccessLogging) > 0 && len(t.AccessLogging) > 0,
		"metrics": len(s.Metrics) > 0 && len(t.Metrics) > 0, "tracing": len(s.Tracing) > 0 && len(t.Tracing) > 0} {
		if both {
			list = append(list, field)
		}
	}
	return list
}

// proxyConfigs reports ProxyConfigs that have no effect, for the same reason.
func (a *analysis) proxyConfigs() {
	a.onlyOne(kinds.ProxyConfig, diag.Warning, codeProxyConfigs, codeProxyConfigs)
}

// peerAuthentications reports PeerAuthentications that have no effect, for the same reason.
func (a *analysis) peerAuthentications() {
	a.onlyOne(kinds.PeerAuthentication, diag.Warning, codePeers, codePeers)
}

// onlyOne reports objects of a kind that have no effect because older objects of the namespace apply to the same
// workloads, and names one such workload. Telemetries with a selector have an effect all the same. byDefault is the
// code if neither has a selector, selected if both have one.
func (a *analysis) onlyOne(kind *kinds.Kind, severity diag.Severity, byDefault, selected string) {
	defaults := map[string]*kinds.Object{}
	owners := a.newOwners()
	for _, o := range a.of(kind) {
		if o.IsLastGood() {
			continue // applies to some workloads of the next version, with the same modes
		}
		field, labels := selectorOf(o)
		if p, ok := o.Spec.(targeting); ok && (p.GetTargetRef() != nil || len(p.GetTargetRefs()) > 0) {
			continue // applies to its targets
		}
		if kind == kinds.PeerAuthentication && o.Namespace == a.root && len(labels) > 0 {
			continue // has no effect, which another analyzer reports
		}
		sidecar, _ := o.Spec.(*networkingv1.Sidecar)
		if len(labels) == 0 && sidecar.GetWorkloadSelector() == nil { // a Sidecar's selector without labels selects every workload
			if first := defaults[o.Namespace]; first != nil {
				a.report(o, severity, byDefault, "metadata.name", "merge the two, or give one a selector",
					"%s has no workload selector either, and comes first (%s): this one has no effect", first, precedence(first, o))
				continue
			}
			defaults[o.Namespace] = o
			continue
		}
		rivals := a.rivalsOf(o)
		for _, l := range owners.claim(o, labels, "", o.Namespace) {
			if kind == kinds.Telemetry { // all are in force
				if both := bothConfigure(l.winner, o); len(both) > 0 && rivals.name(field, l.winner) {
					a.report(o, diag.Warning, selected, field, "let their selectors match different workloads, or merge the two",
						"%s selects %s too and sets %s too: both are in force, and where both set a field, this one takes precedence",
						l.winner, l.at.object, listed(both))
				}
			} else if rivals.name(field, l.winner) {
				a.report(o, severity, selected, field, "let their selectors match different workloads, or merge the two",
					"%s selects %s too, and comes first (%s): this one has no effect there", l.winner, l.at.object, precedence(l.winner, o))
			}
		}
		rivals.end(field)
	}
}
