package gatewayapi

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	gatewayxv1alpha1 "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Defaults of a retry constraint, as the Gateway API has them. The default of the percentage is Envoy's.
const (
	budgetInterval = 10 * time.Second
	fewestRetries  = 10
	rateInterval   = time.Second
)

func trafficSpec(o *kinds.Object) *gatewayxv1alpha1.BackendTrafficPolicySpec {
	return &o.Spec.(*gatewayxv1alpha1.XBackendTrafficPolicy).Spec
}

// limit makes the retry budget of an XBackendTrafficPolicy.
func (p *backendPolicy) limit() {
	spec := trafficSpec(p.object)
	if spec.SessionPersistence != nil {
		p.accepted.message = "Configuration is valid, but Istio does not support the following fields: sessionPersistence"
		p.found("spec.sessionPersistence", diag.Warning,
			"remove it; labels of Services keep sessions at one endpoint, with "+names.SessionsVariable+"=true", "it has no effect")
	}
	c := spec.RetryConstraint
	if c == nil {
		p.found("spec", diag.Warning, "write retryConstraint, or delete the policy", "without retryConstraint it has no effect")
		return
	}
	p.budget = &networkingv1alpha3.TrafficPolicy_RetryBudget{
		BudgetInterval: durationpb.New(budgetInterval), MinRetryConcurrency: fewestRetries,
	}
	if b := c.Budget; b != nil {
		if b.Percent != nil {
			p.budget.Percent = wrapperspb.Double(float64(*b.Percent))
		}
		if d, ok := durationOf(b.Interval); ok {
			p.budget.BudgetInterval = durationpb.New(d)
		}
	}
	if m := c.MinRetryRate; m != nil {
		if m.Count != nil {
			p.budget.MinRetryConcurrency = uint32(*m.Count)
		}
		if d, ok := durationOf(m.Interval); ok && d != rateInterval {
			p.found("spec.retryConstraint.minRetryRate.interval", diag.Warning, "remove it, and write as count how many retries may wait at once",
				"it has no effect: proxies allow count retries at the same time, not in an interval")
		}
	}
}

// durationOf returns the duration that a field holds, if it holds one.
func durationOf(field *gatewayxv1alpha1.Duration) (time.Duration, bool) {
	if field == nil {
		return 0, false
	}
	d, err := time.ParseDuration(string(*field))
	return d, err == nil
}
