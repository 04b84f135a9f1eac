package charts

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestStablePolicy evaluates the policy of stable objects as an API server does: of these kinds and fields each is
// refused with its name, and nothing else is.
func TestStablePolicy(t *testing.T) {
	type object = map[string]any
	of := func(kind, spec string) (o object) {
		must.Succeed(t, yaml.Unmarshal([]byte("kind: "+kind+"\nspec: {"+spec+"}"), &o))
		return o
	}
	cases := []struct {
		object object
		want   string // words of the message; empty if it is accepted
	}{
		{of("EnvoyFilter", ""), "EnvoyFilter is not a stable kind"},
		{object{"kind": "WasmPlugin"}, "WasmPlugin is not a stable kind"},
		{object{"kind": "ProxyConfig"}, "ProxyConfig is not a stable kind"},
		{of("Telemetry", "accessLogging: [{}, {filter: {expression: a}}]"), "accessLogging.filter"},
		{of("Telemetry", "metrics: [{reportingInterval: 5s}]"), "metrics.reportingInterval"},
		{of("Telemetry", "tracing: [{useRequestIdForTraceSampling: false}]"), "tracing.useRequestIdForTraceSampling"},
		{of("AuthorizationPolicy", "rules: [{to: []}, {from: [{source: {trustDomains: [a]}}]}]"), "source.trustDomains"},
		{of("AuthorizationPolicy", "rules: [{from: [{}, {source: {}}, {source: {notTrustDomains: [a]}}]}]"), "source.notTrustDomains"},
		{of("VirtualService", "http: [{}]"), ""},
		{object{"kind": "Telemetry"}, ""},
		{of("Telemetry", "metrics: [{providers: []}], tracing: [{}], accessLogging: []"), ""},
		{object{"kind": "AuthorizationPolicy"}, ""},
		{of("AuthorizationPolicy", "rules: [{from: [{source: {principals: [a]}}]}, {to: [{operation: {paths: [a]}}]}]"), ""},
	}
	e, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	must.Succeed(t, err)
	evaluate := func(text string, object any) any {
		ast, issues := e.Compile(text)
		must.Succeed(t, issues.Err())
		program, err := e.Program(ast)
		must.Succeed(t, err)
		out, _, err := program.Eval(map[string]any{"object": object})
		must.Succeed(t, err)
		return out.Value()
	}
	for _, h := range helms(t) {
		for name, set := range map[string]string{"base": "defaultRevision=default", "istiod": "revision=canary"} {
			out := template(t, h, name, chart(t, name), "--set", "experimental.stableValidationPolicy=true,"+set)
			policies := objects[admissionv1.ValidatingAdmissionPolicy](t, out, "ValidatingAdmissionPolicy")
			bindings := objects[admissionv1.ValidatingAdmissionPolicyBinding](t, out, "ValidatingAdmissionPolicyBinding")
			if len(policies) != 1 || len(bindings) != 1 || bindings[0].Spec.PolicyName != policies[0].Name {
				t.Fatalf("%s: %s renders %+v, %+v", h.Name, name, policies, bindings)
			}
			selector := policies[0].Spec.MatchConstraints.ObjectSelector
			if name == "base" && selector != nil || name == "istiod" && (selector == nil || selector.MatchExpressions[0].Values[0] != "canary") {
				t.Errorf("%s: %s selects %+v", h.Name, name, selector)
			}
			for _, c := range cases {
				var said []string
				for _, v := range policies[0].Spec.Validations {
					if evaluate(v.Expression, c.object) == true {
						continue
					}
					message := v.Message
					if v.MessageExpression != "" {
						message, _ = evaluate(v.MessageExpression, c.object).(string)
					}
					said = append(said, message)
				}
				if got := strings.Join(said, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || len(said) > 1 {
					t.Errorf("%s: %s: %v: %q, want %q", h.Name, name, c.object, got, c.want)
				}
			}
			if out = template(t, h, name, chart(t, name)); strings.Contains(out, "ValidatingAdmissionPolicy") {
				t.Errorf("%s: %s has a policy without being asked", h.Name, name)
			}
		}
	}
}
