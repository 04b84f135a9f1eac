package authz

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// translation is the target of a translation of rules: the requests, or the connections, of one kind of chain.
type translation struct {
	http    bool
	wide    bool     // leave out a condition that cannot be evaluated, instead of the whole rule
	domains []string // the mesh's trust domain, and its aliases
	own     string   // namespace of the policy
}

// translate adds the rules of a policy for a chain to those of its action. begin and end are a prefix and a suffix of
// their names. An ALLOW rule with a condition that cannot be evaluated on the chain is left out. In policies of other
// actions, only the condition is left out.
func translate(out *rbacv3.RBAC, o *kinds.Object, c feature.Chain, begin, end string) {
	t := translation{http: c.HTTP, wide: action(o) != securityv1.AuthorizationPolicy_ALLOW, domains: trustDomains(c.Mesh), own: o.Namespace}
	for i, r := range spec(o).Rules {
		if p, err := t.policy(r); err == nil {
			out.Policies[begin+ruleName(o, i)+end] = p
		}
	}
	if len(spec(o).Rules) == 0 {
		out.Policies[begin+ruleName(o, 0)+end] = never()
	}
}

// attribute is a condition on one attribute: it must match one of values, and none of notValues. An empty list requires
// nothing.
type attribute[M any] struct {
	values, notValues []string
	match             matchAny[M]
}

// matchAny returns a matcher for an attribute that matches one of the values. keepsOut says that a matching request or
// connection is denied. An ambiguous value is then read in every way.
type matchAny[M any] func(values []string, keepsOut bool) (M, error)

// each returns a matchAny that combines the matchers of single values.
func each[M any](l logic[M], one func(value string) (M, error)) matchAny[M] {
	return func(values []string, _ bool) (M, error) {
		all := make([]M, len(values))
		for i, v := range values {
			var err error
			if all[i], err = one(v); err != nil {
				return all[i], err
			}
		}
		return l.or(all...), nil
	}
}

// all returns a matcher for all attributes together.
func all[M any](t translation, l logic[M], attributes []attribute[M]) (M, error) {
	var list []M
	for _, a := range attributes {
		for _, side := range []struct {
			values   []string
			keepsOut bool
			not      bool
		}{{a.values, t.wide, false}, {a.notValues, !t.wide, true}} {
			if len(side.values) == 0 {
				continue
			}
			m, err := a.match(side.values, side.keepsOut)
			switch {
			case err == nil && side.not:
				list = append(list, l.not(m))
			case err == nil:
				list = append(list, m)
			case !t.wide:
				return m, err
			}
		}
	}
	return l.and(list...), nil
}

// policy translates a rule. It returns an error if the chain's traffic does not have an attribute that the rule
// requires.
func (t translation) policy(r *securityv1beta1.Rule) (*rbacv3.Policy, error) {
	var operations []attribute[*rbacv3.Permission]
	var sources []attribute[*rbacv3.Principal]
	for _, c := range r.GetWhen() {
		if o, s, err := t.condition(c); err == nil {
			operations, sources = append(operations, o...), append(sources, s...)
		} else if !t.wide {
			return nil, err
		}
	}
	p := &rbacv3.Policy{}
	for _, to := range orOne(r.GetTo()) {
		m, err := all(t, permissions{}, append(t.operation(to.GetOperation()), operations...))
		if err != nil {
			return nil, err
		}
		p.Permissions = append(p.Permissions, m)
	}
	for _, from := range orOne(r.GetFrom()) {
		m, err := all(t, principals{}, append(t.source(from.GetSource()), sources...))
		if err != nil {
			return nil, err
		}
		p.Principals = append(p.Principals, m)
	}
	return p, nil
}

// orOne returns a list, or one zero value if it is empty: a rule without operations or sources applies to all of them.
func orOne[T any](list []*T) []*T {
	if len(list) == 0 {
		return []*T{nil}
	}
	return list
}

// never returns a policy that matches nothing.
func never() *rbacv3.Policy {
	return &rbacv3.Policy{
		Permissions: []*rbacv3.Permission{permissions{}.not(permissions{}.any())},
		Principals:  []*rbacv3.Principal{principals{}.not(principals{}.any())},
	}
}
