package file

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// withoutController reports Deployments and similar objects, because no controller makes Pods of them here. It skips
// objects whose Pods, or EndpointSlices of their Services, are in the directory.
func (s *Source) withoutController(objects map[kinds.Key]claim) []diag.Diagnostic {
	var findings []diag.Diagnostic
	var there *backends
	for _, path := range sortedPaths(s.files) {
		for _, t := range s.files[path].templates {
			if there == nil {
				there = newBackends(objects)
			}
			if there.has(t) {
				continue
			}
			findings = append(findings, diag.Diagnostic{
				Severity: diag.Warning, Code: "NoController", Object: t.Name, File: filepath.Join(s.opts.Dir, path), Line: t.Line, Column: t.Column,
				Message: "no controller runs for a config directory, so no Pods are made of it, " +
					"and no Pod here has its labels: Services that select it have no endpoints",
				Fix: "add Pods with these labels and status.podIP, or EndpointSlices with the label " + discoveryv1.LabelServiceName,
			})
		}
	}
	return findings
}

// backends are the Pods and EndpointSlices of a directory, by namespace.
type backends struct {
	pods     map[string][]map[string]string // label sets
	services map[string][]*kinds.Object
	sliced   map[string]bool // "namespace/name" of Services
}

func newBackends(objects map[kinds.Key]claim) *backends {
	b := &backends{map[string][]map[string]string{}, map[string][]*kinds.Object{}, map[string]bool{}}
	for key, c := range objects {
		switch key.Kind {
		case kinds.Pod:
			b.pods[key.Namespace] = append(b.pods[key.Namespace], c.object.Labels)
		case kinds.Service:
			b.services[key.Namespace] = append(b.services[key.Namespace], c.object)
		case kinds.EndpointSlice:
			b.sliced[key.Namespace+"/"+c.object.Labels[discoveryv1.LabelServiceName]] = true
		}
	}
	return b
}

// has reports whether Pods of a Template, or EndpointSlices for them, exist.
func (b *backends) has(t validation.Template) bool {
	for _, labels := range b.pods[t.Namespace] {
		if selects(t.Selector, labels) {
			return true
		}
	}
	for _, o := range b.services[t.Namespace] {
		if b.sliced[t.Namespace+"/"+o.Name] && selects(o.Spec.(*corev1.Service).Spec.Selector, t.Labels) {
			return true
		}
	}
	return false
}

// selects is kinds.Selects, except that an empty selector selects nothing.
func selects(selector, labels map[string]string) bool {
	return len(selector) > 0 && kinds.Selects(selector, labels)
}
