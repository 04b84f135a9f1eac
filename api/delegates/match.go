package delegates

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/matches"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Rule is a rule of a VirtualService, and the namespace of that VirtualService.
type Rule struct {
	*networkingv1alpha3.HTTPRoute
	Namespace string
}

// Narrow returns the matches of a delegate's rule after delegation: each match of the delegate combined with each match
// of root that it lies within. If a match of the delegate lies within no match of root, the whole rule is left out, as
// in istiod, and Narrow returns the index of that match. Otherwise the index is -1.
func Narrow(root, child Rule) (list []*networkingv1alpha3.HTTPMatchRequest, outside int) {
	if len(root.Match) == 0 {
		return child.Match, -1
	}
	if len(child.Match) == 0 {
		return root.Match, -1
	}
	for i, c := range child.Match {
		before := len(list)
		for _, r := range root.Match {
			if within(r, c, root.Namespace, child.Namespace) {
				list = append(list, combined(r, c))
			}
		}
		if len(list) == before {
			return nil, i
		}
	}
	return list, -1
}

// Outside returns the index of the first match of a delegate's rule with which Narrow leaves the rule out, or -1.
func Outside(root, child Rule) int {
	_, outside := Narrow(root, child)
	return outside
}

// JoinNames joins the names of two rules, or of two matches, one of which narrows the other.
func JoinNames(root, child string) string {
	if root != "" && child != "" {
		return root + "-" + child
	}
	return root + child
}

// within reports whether istiod takes a delegate's match c for a part of match r. It may miss some cases: a regular
// expression is never a part of anything, nor is anything a part of it.
func within(r, c *networkingv1alpha3.HTTPMatchRequest, rootNamespace, childNamespace string) bool {
	if r == nil || c == nil {
		return r == nil
	}
	if !covers(r.Uri, c.Uri) || !covers(r.Scheme, c.Scheme) || !covers(r.Method, c.Method) || !covers(r.Authority, c.Authority) {
		return false
	}
	for _, m := range [][2]map[string]*networkingv1alpha3.StringMatch{
		{r.Headers, c.Headers}, {r.WithoutHeaders, c.WithoutHeaders}, {r.QueryParams, c.QueryParams},
	} {
		for k, v := range m[1] {
			if !covers(m[0][k], v) {
				return false
			}
		}
	}
	for k, v := range c.SourceLabels {
		if root, both := r.SourceLabels[k]; both && root != v {
			return false
		}
	}
	switch {
	case r.IgnoreUriCase != c.IgnoreUriCase,
		r.Port != 0 && c.Port != 0 && r.Port != c.Port,
		r.SourceNamespace != "" && r.SourceNamespace != c.SourceNamespace,
		len(r.Gateways) > 0 && len(r.Gateways) < len(c.Gateways):
		return false
	}
	return len(r.Gateways) == 0 || !slices.ContainsFunc(c.Gateways, func(g string) bool {
		g = names.Gateway(g, childNamespace)
		return !slices.ContainsFunc(r.Gateways, func(root string) bool { return names.Gateway(root, rootNamespace) == g })
	})
}

// covers reports whether istiod considers that r matches every string that c matches. A nil match matches every string.
// istiod compares exact values and prefixes only: a match without a value, which tests that a header is present, and a
// regular expression cover nothing and are covered by nothing.
func covers(r, c *networkingv1alpha3.StringMatch) bool {
	plain := func(m *networkingv1alpha3.StringMatch) bool { return m.GetExact() != "" || m.GetPrefix() != "" }
	return r == nil || c == nil || plain(r) && plain(c) && matches.TextOf(r).Contains(matches.TextOf(c))
}

// combined returns the match of the requests that match both: c with the conditions that only r has.
func combined(r, c *networkingv1alpha3.HTTPMatchRequest) *networkingv1alpha3.HTTPMatchRequest {
	if r == nil {
		return c
	}
	out := proto.CloneOf(c)
	out.Name = JoinNames(r.Name, c.Name)
	out.Uri = cmp.Or(out.Uri, r.Uri)
	out.Scheme = cmp.Or(out.Scheme, r.Scheme)
	out.Method = cmp.Or(out.Method, r.Method)
	out.Authority = cmp.Or(out.Authority, r.Authority)
	out.Headers = union(r.Headers, c.Headers)
	out.WithoutHeaders = union(r.WithoutHeaders, c.WithoutHeaders)
	out.QueryParams = union(r.QueryParams, c.QueryParams)
	out.SourceLabels = union(r.SourceLabels, c.SourceLabels)
	out.Port = cmp.Or(out.Port, r.Port)
	out.SourceNamespace = cmp.Or(out.SourceNamespace, r.SourceNamespace)
	if len(out.Gateways) == 0 {
		out.Gateways = r.Gateways
	}
	out.StatPrefix = cmp.Or(out.StatPrefix, r.StatPrefix)
	return out
}

// union returns the entries of both maps, or nil if there are none. Entries of the second take precedence.
func union[V any](a, b map[string]V) map[string]V {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// replaceable are the fields of a rule that have parts. A delegate's field replaces the root's as a whole.
var replaceable = []protoreflect.Name{"rewrite", "retries", "fault", "mirrors", "cors_policy", "headers"}

// Replaced returns the names, as in YAML, of the fields of root that lose a part because a delegate's rule has the
// field too.
func Replaced(root, child *networkingv1alpha3.HTTPRoute) (fields []string) {
	a, b := root.ProtoReflect(), child.ProtoReflect()
	for _, name := range replaceable {
		f := a.Descriptor().Fields().ByName(name)
		if a.Has(f) && b.Has(f) && !includes(f, b.Get(f), a.Get(f)) {
			fields = append(fields, f.JSONName())
		}
	}
	return fields
}

// includes reports whether value b of a field sets everything that value a sets.
func includes(f protoreflect.FieldDescriptor, b, a protoreflect.Value) bool {
	switch {
	case f.IsMap():
		every := true
		a.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			every = b.Map().Has(k)
			return every
		})
		return every
	case f.IsList():
		return a.Equal(b)
	case f.Message() == nil || f.Message().ParentFile().Package() == "google.protobuf":
		return true
	}
	every := true
	a.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		other := b.Message()
		if other.Has(f) {
			every = includes(f, other.Get(f), v)
		} else {
			every = f.ContainingOneof() != nil && other.WhichOneof(f.ContainingOneof()) != nil
		}
		return every
	})
	return every
}
