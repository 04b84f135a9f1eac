package ingest

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Namespaces returns the namespaces whose objects are read from API servers, or nil for all. The root namespace is one
// of them, because its objects may restrict the whole mesh.
func (o Options) Namespaces() []string {
	switch o.WatchNamespace {
	case "":
		return nil
	case o.Namespace:
		return []string{o.Namespace}
	}
	return []string{o.WatchNamespace, o.Namespace}
}

// watches reports whether objects of a namespace are read from API servers.
func (o Options) watches(namespace string) bool {
	return o.WatchNamespace == "" || slices.Contains(o.Namespaces(), namespace)
}

// Ignored returns the kinds of configuration that a pattern of ignore matches and no pattern of include, and the
// patterns of each list that match no kind. A pattern is a resource, such as sidecars.networking.istio.io, or "*." and
// the last parts of the names of resources, such as *.istio.io.
func Ignored(ignore, include []string) (list []*kinds.Kind, idleIgnore, idleInclude []string) {
	all := Options{AlphaGatewayAPI: true}.configKinds()
	matches := func(pattern string, k *kinds.Kind) bool {
		end, wild := strings.CutPrefix(pattern, "*")
		return wild && strings.HasPrefix(end, ".") && strings.HasSuffix(resourceOf(k), end) || pattern == resourceOf(k)
	}
	matched := func(patterns []string, k *kinds.Kind) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, k) })
	}
	idle := func(patterns []string) (none []string) {
		for _, p := range patterns {
			if !slices.ContainsFunc(all, func(k *kinds.Kind) bool { return matches(p, k) }) {
				none = append(none, p)
			}
		}
		return none
	}
	for _, k := range all {
		if matched(ignore, k) && !matched(include, k) {
			list = append(list, k)
		}
	}
	return list, idle(ignore), idle(include)
}

// resourceOf returns the name of the CustomResourceDefinition of a kind, which kinds of Kubernetes could have.
func resourceOf(k *kinds.Kind) string { return k.Plural + "." + k.Group }

// unignored returns the kinds of a list that are read from API servers.
func (o Options) unignored(list []*kinds.Kind) []*kinds.Kind {
	return slices.DeleteFunc(list, func(k *kinds.Kind) bool { return slices.Contains(o.Ignored, k) })
}

// ignored returns the findings about kinds that are not read: one about kinds that restrict, and one about the others.
func (o Options) ignored() (findings []diag.Diagnostic) {
	if o.Client == nil {
		return nil
	}
	add := func(severity diag.Severity, effect string, restricts bool) {
		list := lists.Map(slices.DeleteFunc(slices.Clone(o.Ignored), func(k *kinds.Kind) bool { return k.Security != restricts }), resourceOf)
		if len(list) == 0 {
			return
		}
		findings = append(findings, diag.Diagnostic{
			Severity: severity, Code: "IgnoredKinds",
			Message: "objects of API servers are not read, because PILOT_IGNORE_RESOURCES names their kinds" + effect + ": " +
				strings.Join(list, ", "),
			Fix: "if this is not wanted, change PILOT_IGNORE_RESOURCES, or name the kinds in PILOT_INCLUDE_RESOURCES",
		})
	}
	add(diag.Warning, ", and what they would refuse is allowed", true)
	add(diag.Info, "", false)
	return findings
}

// watched returns a finding if Options.WatchNamespace names a namespace that does not take part in the mesh.
func (s *Sources) watched() (d diag.Diagnostic, wrong bool) {
	name := s.o.WatchNamespace
	if name == "" || s.o.Client == nil || !s.HasSynced() || s.world.TakesPart("", name) {
		return d, false
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "WatchedNamespace", Object: "Namespace " + name,
		Message: "it is the only namespace that this server reads (ISTIO_WATCH_NAMESPACE), and it does not exist or " +
			"the discoverySelectors of the mesh configuration do not select it",
		Fix: "create the namespace, select it, or name another one in ISTIO_WATCH_NAMESPACE",
	}, true
}

// WhyUnread returns why objects with such a key are not read from the API server of the own cluster, or an empty
// string if they are.
func (s *Sources) WhyUnread(k kinds.Key) string {
	switch {
	case s.o.Client == nil || k.Cluster != "":
	case slices.Contains(s.o.Ignored, k.Kind):
		return "PILOT_IGNORE_RESOURCES names its kind, so it is not read"
	case k.Namespace != "" && !s.o.watches(k.Namespace):
		return "ISTIO_WATCH_NAMESPACE names another namespace, so it is not read"
	}
	return ""
}

// Unneeded returns why a Secret or a ConfigMap is not read from the API server of the server's own cluster now, or an
// empty string. Such an object is read once a connected proxy or another object needs it.
func (s *Sources) Unneeded(k kinds.Key) string {
	if k.Kind != kinds.Secret && (k.Kind != kinds.ConfigMap || s.o.vital(k)) { // a vital ConfigMap is always read
		return ""
	}
	if k.Cluster != "" || s.secrets == nil || s.o.ConfigDir != "" || s.secrets.Wants(k) {
		return ""
	}
	return "no connected proxy needs it, so it is not read"
}

// Unusable reports whether the last version of an object is not in force as it is written, and returns its generation,
// which is 0 for an object in a file. The object is in the server's own cluster or in its files.
func (s *Sources) Unusable(k kinds.Key) (generation int64, is bool) {
	s.mu.Lock()
	readers := slices.Clone(s.readers)
	s.mu.Unlock()
	for _, r := range readers {
		if generation, is = r.Unusable(k); is {
			return generation, true
		}
	}
	if s.o.ConfigDir == "" && s.o.Texts == nil {
		return 0, false
	}
	name := k.String()
	o, _, _ := s.world.Stored(k)
	return 0, slices.ContainsFunc(s.Findings(), func(d diag.Diagnostic) bool {
		return d.Object == name && d.File != "" && d.Severity == diag.Error && d.Code != "DuplicateObject" || config.BreaksFile(d, o)
	})
}
