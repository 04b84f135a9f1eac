package authz

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// translation is what rules are translated for: the requests, or the connections, that one kind of chain takes.
type translation struct {
	http    bool
	wide    bool     // a condition that cannot be evaluated is left out; without it the whole rule is
	domains []string // the mesh's trust domain, and its aliases
	own     string   // the namespace of the policy
}

// translate adds the rules of a policy to those of its action, for a chain. begin and end are added to their names. An
// ALLOW rule with a condition that cannot be evaluated on the chain is left out. In policies of other actions, the
// condition alone is left out.
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

// attribute is what a rule demands of one attribute: one of values, and none of notValues. An empty list demands
// nothing.
type attribute[M any] struct {
	values, notValues []string
	match             matchAny[M]
}

// matchAny returns the matcher of an attribute that has one of some values. keepsOut says that a request or connection
// with such a value is refused. A value that can be read in two ways is then read in both.
type matchAny[M any] func(values []string, keepsOut bool) (M, error)

// each returns the function that combines the matchers of single values.
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

// all returns the matcher of all attributes together.
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

// policy translates a rule. It returns an error where the chain's traffic has not what the rule asks for.
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

// orOne returns a list, or one zero value where it is empty: a rule without operations or sources is about all of them.
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
