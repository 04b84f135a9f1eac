package authz

import (
	"strconv"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature of policies that proxies evaluate themselves, of actions AUDIT, DENY and ALLOW.
func New() *feature.Feature {
	return &feature.Feature{
		Name:  "authz",
		Kinds: []*kinds.Kind{kinds.AuthorizationPolicy},
		Part:  feature.InboundPart,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			policies := feature.Policies(r, namespace, func(o *kinds.Object, w feature.Workload) bool {
				return action(o) != securityv1.AuthorizationPolicy_CUSTOM && feature.Matches(o, w)
			}, kinds.AuthorizationPolicy)
			return func(w feature.Workload) feature.Selection { return withoutOpening(policies(w)) }
		},
		Unsupported: unsupported,
		Hooks:       feature.Hooks{FiltersReadOf: filtersReadOf, HTTPFilters: httpFilters, NetworkFilters: networkFilters},
	}
}

// withoutOpening returns a Selection without policies of action ALLOW that target services, if another such policy
// applies to the workload. They are written for proxies in front of the services, and would allow requests that the
// workload's own policies do not. Alone they only restrict.
func withoutOpening(s feature.Selection) feature.Selection {
	var all, kept []*kinds.Object
	own := false // a policy for the workload itself says what is allowed
	for o := range s.Objects.All {
		all = append(all, o)
		enforced := action(o) == securityv1.AuthorizationPolicy_ALLOW && !dryRun(o)
		own = own || enforced && !feature.TargetsServices(o)
		if !enforced || !feature.TargetsServices(o) {
			kept = append(kept, o)
		}
	}
	if !own || len(kept) == len(all) {
		return s
	}
	return feature.Of(kept...)
}

func spec(o *kinds.Object) *securityv1.AuthorizationPolicy {
	return o.Spec.(*securityv1.AuthorizationPolicy)
}

func action(o *kinds.Object) securityv1.AuthorizationPolicy_Action { return spec(o).Action }

// dryRun reports whether a policy only logs what it would deny. An annotation that is not a boolean does not make a
// policy a dry run.
func dryRun(o *kinds.Object) bool {
	dry, err := strconv.ParseBool(o.Annotations[kinds.AnnotationDryRun])
	return err == nil && dry
}

// ruleName returns the name of a rule, which proxies write in logs, metrics and traces.
func ruleName(o *kinds.Object, rule int) string {
	return "ns[" + o.Namespace + "]-policy[" + o.Name + "]-rule[" + strconv.Itoa(rule) + "]"
}
