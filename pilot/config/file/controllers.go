package file

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// withoutController reports Deployments and the like, of which a cluster would make Pods and a directory does not. One is right where the directory has Pods that it
// selects, or where EndpointSlices say where the Pods of its Services are.
func (s *Source) withoutController(objects map[kinds.Key]claim) []diag.Diagnostic {
	var findings []diag.Diagnostic
	var there *population
	for _, path := range sortedPaths(s.files) {
		for _, m := range s.files[path].makers {
			if there == nil {
				there = newPopulation(objects)
			}
			if there.has(m) {
				continue
			}
			findings = append(findings, diag.Diagnostic{
				Severity: diag.Warning, Code: "NoController", Object: m.Name, File: filepath.Join(s.opts.Dir, path), Line: m.Line, Column: m.Column,
				Message: "no controller runs for a config directory, so no Pods are made of it, and no Pod here has its labels: Services that select it have no endpoints",
				Fix:     "add Pods with these labels and status.podIP, or EndpointSlices with the label " + discoveryv1.LabelServiceName,
			})
		}
	}
	return findings
}

// population is who is there in each namespace.
type population struct {
	pods     map[string][]map[string]string // labels
	services map[string][]*kinds.Object
	sliced   map[string]bool // "ns/name" of Services
}

func newPopulation(objects map[kinds.Key]claim) *population {
	p := &population{map[string][]map[string]string{}, map[string][]*kinds.Object{}, map[string]bool{}}
	for key, c := range objects {
		switch key.Kind {
		case kinds.Pod:
			p.pods[key.Namespace] = append(p.pods[key.Namespace], c.object.Labels)
		case kinds.Service:
			p.services[key.Namespace] = append(p.services[key.Namespace], c.object)
		case kinds.EndpointSlice:
			p.sliced[key.Namespace+"/"+c.object.Labels[discoveryv1.LabelServiceName]] = true
		}
	}
	return p
}

func (p *population) has(m validation.Template) bool {
	for _, labels := range p.pods[m.Namespace] {
		if selects(m.Selector, labels) {
			return true
		}
	}
	for _, o := range p.services[m.Namespace] {
		if p.sliced[m.Namespace+"/"+o.Name] && selects(o.Spec.(*corev1.Service).Spec.Selector, m.Labels) {
			return true
		}
	}
	return false
}

// selects is kinds.Selects, but an empty selector selects nothing.
func selects(selector, labels map[string]string) bool {
	return len(selector) > 0 && kinds.Selects(selector, labels)
}
