package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/derive/derivetest"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// TestBackendTraffic: XBackendTrafficPolicies become the retry budget of the DestinationRule of their targets, beside
// the TLS settings of BackendTLSPolicies. Of several the oldest is in force, and the status and a finding of the others
// say so. Fields and targets without effect have findings.
func TestBackendTraffic(t *testing.T) {
	policy := func(name, targets, rest string) string {
		return "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: " + name +
			", namespace: gw}\nspec: {targetRefs: [" + targets + "]" + rest + "}"
	}
	const (
		w, constraint = `{group: "", kind: Service, name: w}`, ", retryConstraint: {budget: {percent: 30, interval: 5s}, " +
			"minRetryRate: {count: 7, interval: 1s}}"
		entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: gw}\n" +
			"spec: {hosts: [e.org], ports: [{number: 80, name: http, protocol: HTTP}]}"
		secured = "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: s, namespace: gw}\nspec: " +
			"{targetRefs: [" + w + "], validation: {hostname: w.org, wellKnownCACertificates: System}}"
		valid    = "Service w: Accepted=True Accepted, Configuration is valid"
		sessions = ", sessionPersistence: {sessionName: a}"
		inForce  = "30%, 5s, 7"
	)
	for _, c := range []struct {
		name     string
		objects  []string
		off      bool
		rules    []string // the retry budget of each, and whether it has TLS settings
		status   []string // of the policy p
		findings []string // the fields of them
	}{
		{"everything", []string{policy("p", w, constraint)}, false, []string{"w " + inForce}, []string{valid}, nil},
		{"defaults", []string{policy("p", w, ", retryConstraint: {budget: {}, minRetryRate: {}}")}, false,
			[]string{"w default, 10s, 10"}, []string{valid}, nil},
		{"no fields", []string{policy("p", w, ", retryConstraint: {}")}, false,
			[]string{"w default, 10s, 10"}, []string{valid}, nil},
		{"no retries", []string{policy("p", w, ", retryConstraint: {budget: {percent: 0}}")}, false,
			[]string{"w 0%, 10s, 10"}, []string{valid}, nil},
		{"another interval of the rate", []string{policy("p", w, ", retryConstraint: {minRetryRate: {count: 3, interval: 1m}}")}, false,
			[]string{"w default, 10s, 3"}, []string{valid},
			[]string{"p spec.retryConstraint.minRetryRate.interval"}},
		{"sessions", []string{policy("p", w, sessions+constraint)}, false, []string{"w " + inForce},
			[]string{valid + ", but Istio does not support the following fields: sessionPersistence"}, []string{"p spec.sessionPersistence"}},
		{"sessions alone", []string{policy("p", w, sessions)}, false, nil,
			[]string{valid + ", but Istio does not support the following fields: sessionPersistence"},
			[]string{"p spec", "p spec.sessionPersistence"}},
		{"targets that are missing", []string{policy("p", w+`, {group: "", kind: Service, name: x}, {group: apps, kind: Deployment, name: w}, `+
			"{group: networking.istio.io, kind: ServiceEntry, name: e}", constraint), entry}, false, []string{"w " + inForce}, []string{valid,
			"Service x: Accepted=False TargetNotFound, targetRefs invalid: reference gw/x (of kind Service) not found",
			"Deployment w: Accepted=False TargetNotFound, targetRefs invalid: unsupported kind Deployment",
			"ServiceEntry e: Accepted=False TargetNotFound, targetRefs invalid: unsupported reference kind: ServiceEntry"},
			[]string{"p spec.targetRefs[1]", "p spec.targetRefs[2]", "p spec.targetRefs[3]"}},
		{"with TLS", []string{policy("p", w, constraint), secured}, false, []string{"w " + inForce + " TLS"}, []string{valid}, nil},
		{"TLS of one port", []string{policy("p", w, constraint), strings.Replace(secured, "name: w}", "name: w, sectionName: http}", 1)}, false,
			[]string{"w " + inForce + " TLS"}, []string{valid}, nil},
		{"the oldest", []string{policy("o", w, constraint), policy("p", w, ", retryConstraint: {}")}, false, []string{"w " + inForce},
			[]string{`Service w: Accepted=False Conflicted, Conflicts with XBackendTrafficPolicy "o" targeting the same backend`},
			[]string{"p spec.targetRefs[0]"}},
		{"the oldest that limits retries", []string{policy("o", w, sessions), policy("p", w, constraint)}, false, []string{"w " + inForce},
			[]string{valid}, []string{"o spec", "o spec.sessionPersistence"}},
		{"for other controllers", []string{strings.Replace(policy("p", w, constraint), "namespace: gw",
			`namespace: gw, annotations: {istio.io/ignore-policy-attachment: "true"}`, 1)}, false, nil,
			[]string{"Service w: Accepted=False IgnoredByIstio, Ignored by Istio due to annotation istio.io/ignore-policy-attachment=true"}, nil},
		{"not enabled", []string{policy("p", w, constraint), secured}, true, []string{"w none TLS"}, nil, []string{"p "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			world, stage := objects{}, derivetest.New(gatewayapi.New(gatewayapi.Options{Domain: "cluster.local", Alpha: !c.off}))
			world.put(t, strings.Replace(edge, "{port: 80}", "{name: http, port: 80}", 1)+strings.Join(c.objects, "\n---\n"))
			out := stage.Run(t, world, mesh.Default())
			var rules, status, findings []string
			for _, d := range out.Objects {
				if d.Object.Kind == kinds.DestinationRule {
					policy := d.Object.Spec.(*networkingv1.DestinationRule).TrafficPolicy
					name, _, _ := strings.Cut(d.Object.Name, "~")
					text := name + " " + budgetOf(policy.RetryBudget)
					if policy.Tls != nil || policy.PortLevelSettings != nil {
						text += " TLS"
					}
					rules = append(rules, text)
				}
			}
			ancestors, _ := statusOf(out, kinds.XBackendTrafficPolicy, "p")["ancestors"].([]any)
			for _, a := range ancestors {
				ref, conditions := a.(map[string]any)["ancestorRef"].(map[string]any), a.(map[string]any)["conditions"].([]any)
				status = append(status, fmt.Sprintf("%s %s: %s, %s", ref["kind"], ref["name"], strings.Join(conditionsOf(conditions), " "),
					conditions[0].(map[string]any)["message"]))
				if by := a.(map[string]any)["controllerName"]; by != "istio.io/mesh-controller" {
					t.Errorf("the status is of %s", by)
				}
			}
			for _, f := range out.Findings {
				if f.Code == "XBackendTrafficPolicy" {
					_, name, _ := strings.Cut(f.Object, "/")
					findings = append(findings, name+" "+f.Field)
				}
				if f.Fix == "" {
					t.Errorf("without a fix: %s", f)
				}
			}
			slices.Sort(findings)
			for _, x := range []struct {
				what      string
				got, want []string
			}{{"rules", rules, c.rules}, {"status", status, c.status}, {"findings", findings, c.findings}} {
				if !slices.Equal(x.got, x.want) {
					t.Errorf("%s:\n%s\nwant\n%s", x.what, strings.Join(x.got, "\n"), strings.Join(x.want, "\n"))
				}
			}
		})
	}
}

// budgetOf returns the percentage, the interval and the fewest retries of a budget as text.
func budgetOf(b *networkingv1alpha3.TrafficPolicy_RetryBudget) string {
	if b == nil {
		return "none"
	}
	percent := "default"
	if b.Percent != nil {
		percent = fmt.Sprintf("%v%%", b.Percent.Value)
	}
	return fmt.Sprintf("%s, %v, %d", percent, b.BudgetInterval.AsDuration(), b.MinRetryConcurrency)
}
