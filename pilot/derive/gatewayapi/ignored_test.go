package gatewayapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// A BackendTLSPolicy with the annotation that has Istio ignore it makes no rules and no findings, and precedes no other
// policy. Its status has what istiod 1.31 writes.
func TestIgnoredPolicy(t *testing.T) {
	const policies = `apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: a, namespace: gw, annotations: {istio.io/ignore-policy-attachment: VALUE}}
spec: {targetRefs: [{group: "", kind: Service, name: w}], options: {x: z},
  validation: {hostname: a.example, wellKnownCACertificates: System}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: b, namespace: gw}
spec: {targetRefs: [{group: "", kind: Service, name: w}], validation: {hostname: b.example, wellKnownCACertificates: System}}
`
	world, stage := objects{}, newStage()
	for _, c := range []struct{ value, origin, conditions string }{
		{`"false"`, "a", "Accepted=True Accepted, ResolvedRefs=True ResolvedRefs"},
		{`"true"`, "b", "Accepted=False IgnoredByIstio"},
		{`"True"`, "b", "Accepted=False IgnoredByIstio"},
		{`"yes"`, "a", "Accepted=True Accepted, ResolvedRefs=True ResolvedRefs"},
	} {
		world.put(t, edge+strings.Replace(policies, "VALUE", c.value, 1))
		out := stage.Run(t, world, mesh.Default())
		var origins []string
		for _, d := range out.Objects {
			if d.Object.Kind == kinds.DestinationRule {
				origins = append(origins, d.Origin.Name)
			}
		}
		if !slices.Equal(origins, []string{c.origin}) {
			t.Errorf("%s: rules of %q, want one of %s", c.value, origins, c.origin)
		}
		if got := strings.Join(conditionsOf(statusOf(out, kinds.BackendTLSPolicy, "a")), ", "); got != c.conditions {
			t.Errorf("%s: %s, want %s", c.value, got, c.conditions)
		}
		if ignored := c.origin == "b"; ignored != (len(out.Findings) == 0) {
			t.Errorf("%s: findings %v", c.value, out.Findings)
		}
	}
}
