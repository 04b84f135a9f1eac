package analysis

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// injection reports namespaces that get no proxies without saying so, and Pods without a proxy where others get one.
func (a *analysis) injection() {
	injected, disabled := map[string]bool{}, map[string]bool{}
	for _, o := range a.of(kinds.Namespace) {
		// The webhooks select namespaces with the word enabled, and those without the label.
		if word := o.Labels[names.LabelInjection]; word != "" && word != "enabled" {
			disabled[o.Name] = true
		}
		if strings.HasPrefix(o.Name, "kube-") || o.Name == a.root {
			continue
		}
		word, revision := o.Labels[names.LabelInjection], o.Labels[names.LabelRevision]
		switch {
		case word != "" && revision != "":
			injected[o.Name] = word == "enabled"
			a.report(o, diag.Warning, codeInjectionLabels, `metadata.labels["`+names.LabelRevision+`"]`, "remove one of the two",
				"the namespace has the label %s too, which takes precedence: the revision %s has no effect", names.LabelInjection, revision)
		case word == "enabled" || revision != "":
			injected[o.Name] = true
		case word == "" && o.Labels[names.LabelDataplane] == "":
			a.report(o, diag.Info, codeNotInjected, "metadata.labels", "label it "+names.LabelInjection+"=enabled, or "+names.LabelInjection+"=disabled if that is meant",
				"Pods of the namespace get no proxy")
		}
	}
	for _, w := range a.pods {
		o := w.object
		if disabled[o.Namespace] {
			continue
		}
		wanted := injected[o.Namespace] || o.Labels[names.LabelRevision] != ""
		if note := o.Annotations[names.LabelInject]; note != "" && note != "true" { // no webhook is called for an annotation
			wanted = false
		}
		if said := o.Labels[names.LabelInject]; said != "" { // it takes precedence
			wanted = said == "true"
		}
		if wanted && !w.pod.Proxy && !w.pod.HostNetwork {
			a.report(o, diag.Warning, codeNoProxy, "spec.containers", "create it anew: kubectl rollout restart of its controller",
				"the Pod has no proxy, although its labels or its namespace's ask for one")
		}
	}
}
