package inspect

import (
	"runtime"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// patches returns findings about patches of EnvoyFilters: which are left out of what the proxies of Pods would be sent,
// and which match nothing. Patches of objects that select no Pod are tried on hypothetical proxies.
func (i *Inspection) patches(features catalog.List) ([]diag.Diagnostic, error) {
	objects := i.objectsOf(kinds.EnvoyFilter)
	if len(objects) == 0 {
		return nil, nil
	}
	unused := lists.Set(objects)
	made := map[cohort.Key]bool{}
	try := func(translator *translate.Translator, p *node.Proxy) error {
		k := translator.ResolveCohort(i.Snapshot, p)
		if k.Patches.None() {
			return nil
		}
		k.Address, k.Node, k.Location = "", "", cohort.Location{}
		if made[k] {
			return nil
		}
		made[k] = true
		_, err := i.resources(translator, p, k, nil)
		return err
	}
	for _, o := range i.objectsOf(kinds.Pod) {
		if o.Cluster != "" {
			continue
		}
		p := i.proxy(o)
		for _, o := range i.translator.Selected(i.Snapshot, p, kinds.EnvoyFilter) {
			delete(unused, o)
		}
		if err := try(i.translator, p); err != nil {
			return nil, err
		}
	}
	list := i.translator.Findings()

	imagined := translate.New(translate.Options{Features: features, Idle: idleResources})
	for o := range unused {
		for _, t := range []node.Type{node.Sidecar, node.Router} {
			p := &node.Proxy{
				Type: t, Name: "none", Namespace: o.Namespace, Domain: o.Namespace + ".svc." + i.o.Domain, Cluster: i.o.ClusterID,
				Labels: o.Spec.(*networkingv1alpha3.EnvoyFilter).GetWorkloadSelector().GetLabels(), Interception: node.Redirect,
			}
			p.ID = strings.Join([]string{p.Name, p.Namespace}, ".")
			if err := try(imagined, p); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range imagined.Findings() {
		if d.Code != feature.PatchNoMatch { // a Pod that matches may be created later
			list = append(list, d)
		}
	}
	runtime.KeepAlive(made) // the Translator keeps its results as long as their keys are referenced
	return i.world.Located(list), nil
}
