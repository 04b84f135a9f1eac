package trace

import (
	"fmt"
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// fault answers a share of requests itself. A fault of the route replaces the filter's own.
func fault(x *stream, f filter, m *faultv3.HTTPFault) bool {
	x.override(f, m)
	abort, applies := m.GetAbort(), x.faultApplies(m)
	if abort == nil || !applies.possible() {
		return true
	}
	text, status := statusOf(abort)
	if abort.GetHeaderAbort() != nil { // the client asks for an abort
		if asked := x.request.Headers["x-envoy-fault-abort-request"]; asked != "" {
			x.depends("the fault%s may answer with status %s, for which the request asks", x.of(Origin{Filter: f.name}), asked)
		}
		return true
	}
	origin := Origin{Path: configOf(x.route.GetMetadata())}
	if origin.Path == "" {
		origin.Filter = f.name
	}
	switch share := share100(abort.GetPercentage()); {
	case share > 0 && !applies.certain():
		x.dependsOn(accesslog.Fault, status, "the fault%s answers %s with %s: whether it applies depends on %s", x.of(origin),
			percent(abort.GetPercentage()), text, applies.text())
	case share >= 100:
		x.routed()
		x.Answered = true
		x.end(accesslog.Fault, status, "the route has a fault that answers every request with %s", text)
		return false
	case share > 0:
		x.dependsOn(accesslog.Fault, status, "the fault%s answers %s with %s", x.of(origin), percent(abort.GetPercentage()), text)
	}
	return true
}

// faultApplies reports whether the conditions of a fault hold: the headers of the request, the cluster that it goes to,
// and the node that a proxy of the client names in a header.
func (x *stream) faultApplies(m *faultv3.HTTPFault) truth {
	conditions := lists.Map(m.GetHeaders(), x.hasHeader)
	if nodes := m.GetDownstreamNodes(); len(nodes) > 0 {
		node, _ := x.request.header("x-envoy-downstream-service-node")
		conditions = append(conditions, known(slices.Contains(nodes, node)))
	}
	if wanted := m.GetUpstreamCluster(); wanted != "" {
		cluster := unknown("the cluster that is chosen for the request")
		if chosen := x.clusters(); len(chosen) < 2 {
			cluster = known(len(chosen) == 1 && chosen[0].name == wanted)
		}
		conditions = append(conditions, cluster)
	}
	return every(conditions, func(t truth) truth { return t })
}

// faultOf returns the fault that a route injects, or nil.
func faultOf(r *routev3.Route) *faultv3.HTTPFault {
	for _, config := range r.GetTypedPerFilterConfig() {
		f := &faultv3.HTTPFault{}
		if config.MessageIs(f) && config.UnmarshalTo(f) == nil {
			return f
		}
	}
	return nil
}

// statusOf returns the status of an abort. A gRPC status is sent in a header, with HTTP status 200.
func statusOf(abort *faultv3.FaultAbort) (string, int) {
	if _, ok := abort.GetErrorType().(*faultv3.FaultAbort_GrpcStatus); ok {
		return fmt.Sprintf("status %s of gRPC", code.Code(abort.GetGrpcStatus())), 200
	}
	return fmt.Sprintf("status %d", abort.GetHttpStatus()), int(abort.GetHttpStatus())
}

func percent(p *typev3.FractionalPercent) string {
	return strconv.FormatFloat(share100(p), 'f', -1, 64) + " % of requests"
}

func share100(p *typev3.FractionalPercent) float64 {
	of := map[typev3.FractionalPercent_DenominatorType]float64{typev3.FractionalPercent_HUNDRED: 100,
		typev3.FractionalPercent_TEN_THOUSAND: 10000, typev3.FractionalPercent_MILLION: 1000000}[p.GetDenominator()]
	return 100 * float64(p.GetNumerator()) / of
}
