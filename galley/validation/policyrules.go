package validation

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"
)

// allowedByBoth returns rules of AuthorizationPolicies that match no request unless both lists do: the rules of each
// list that a rule of the other one covers.
func allowedByBoth(a, b []*securityv1.Rule) []*securityv1.Rule {
	var out []*securityv1.Rule
	add := func(list, others []*securityv1.Rule) {
		for _, r := range list {
			covered := slices.ContainsFunc(others, func(o *securityv1.Rule) bool { return ruleCovers(o, r) })
			if covered && !slices.ContainsFunc(out, func(o *securityv1.Rule) bool { return proto.Equal(o, r) }) {
				out = append(out, r)
			}
		}
	}
	add(a, b)
	add(b, a)
	return out
}

// ruleCovers reports whether a rule certainly matches each request that another rule matches. It may return false for a
// rule that does.
func ruleCovers(wide, narrow *securityv1.Rule) bool {
	from := func(n *securityv1.Rule_From) bool {
		return slices.ContainsFunc(wide.From, func(w *securityv1.Rule_From) bool { return wider(w.GetSource(), n.GetSource()) })
	}
	to := func(n *securityv1.Rule_To) bool {
		return slices.ContainsFunc(wide.To, func(w *securityv1.Rule_To) bool { return wider(w.GetOperation(), n.GetOperation()) })
	}
	when := func(w *securityv1.Condition) bool {
		return slices.ContainsFunc(narrow.When, func(n *securityv1.Condition) bool {
			return w.GetKey() == n.GetKey() && oneOf(w.GetValues(), n.GetValues()) && within(w.GetNotValues(), n.GetNotValues())
		})
	}
	return (len(wide.From) == 0 || len(narrow.From) > 0 && all(narrow.From, from)) &&
		(len(wide.To) == 0 || len(narrow.To) > 0 && all(narrow.To, to)) && all(wide.When, when)
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !is(v) })
}

// oneOf reports whether a condition on the values wide holds whenever a condition on narrow holds. An empty list is no
// condition.
func oneOf(wide, narrow []string) bool {
	return len(wide) == 0 || len(narrow) > 0 && within(narrow, wide)
}

// within reports whether each value of a list is one of another.
func within(list, in []string) bool {
	return all(list, func(v string) bool { return slices.Contains(in, v) })
}

// wider reports whether a Source or an Operation matches every request that another one matches. All their fields are
// lists of texts. The fields whose names begin with "not" exclude values.
func wider(wide, narrow proto.Message) bool {
	w, n := wide.ProtoReflect(), narrow.ProtoReflect()
	texts := func(m protoreflect.Message, fd protoreflect.FieldDescriptor) (list []string) {
		if m.IsValid() {
			for values, i := m.Get(fd).List(), 0; i < values.Len(); i++ {
				list = append(list, values.Get(i).String())
			}
		}
		return list
	}
	fields := w.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		a, b := texts(w, fd), texts(n, fd)
		excludes := strings.HasPrefix(string(fd.Name()), "not_")
		if excludes && !within(a, b) || !excludes && !oneOf(a, b) {
			return false
		}
	}
	return true
}

// selecting is a spec with the fields by which security objects select workloads.
type selecting interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// relation is how the workloads of two objects of a namespace relate.
type relation int

const (
	sameWorkloads  relation = iota
	otherWorkloads          // no common workload
	someWorkloads           // possibly some common workloads
)

// selections compares the workloads that two specs select.
func selections(a, b any) relation {
	x, y := selectionOf(a), selectionOf(b)
	if proto.Equal(x, y) {
		return sameWorkloads
	}
	if len(x.TargetRefs)+len(y.TargetRefs) == 0 {
		for key, value := range x.GetSelector().GetMatchLabels() {
			if other, both := y.GetSelector().GetMatchLabels()[key]; both && other != value {
				return otherWorkloads
			}
		}
	}
	return someWorkloads
}

// selectionOf returns a policy with only the selection of a spec.
func selectionOf(spec any) *securityv1.AuthorizationPolicy {
	out := &securityv1.AuthorizationPolicy{Selector: spec.(interface {
		GetSelector() *typev1beta1.WorkloadSelector
	}).GetSelector()}
	if s, ok := spec.(selecting); ok {
		if out.TargetRefs = s.GetTargetRefs(); s.GetTargetRef() != nil {
			out.TargetRefs = append(slices.Clone(out.TargetRefs), s.GetTargetRef())
		}
	}
	return out
}
