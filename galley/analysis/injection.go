package analysis

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// injection reports namespaces with two labels of injection or with none, and Pods without a proxy although labels ask
// for one.
func (a *analysis) injection() {
	for _, o := range a.of(kinds.Namespace) {
		if isSystem(o.Name, a.root) {
			continue
		}
		word, revision := o.Labels[names.LabelInjection], o.Labels[names.LabelRevision]
		switch {
		case word != "" && revision != "":
			a.report(o, diag.Warning, codeInjectionLabels, `metadata.labels["`+names.LabelRevision+`"]`, "remove one of the two",
				"the namespace has the label %s too, which takes precedence: the revision %s has no effect", names.LabelInjection, revision)
		case word == "enabled" || revision != "":
		case word == "" && o.Labels[names.LabelDataplane] == "":
			a.report(o, diag.Info, codeNotInjected, "metadata.labels",
				"label it "+names.LabelInjection+"=enabled, or "+names.LabelInjection+"=disabled if that is meant",
				"Pods of the namespace get no proxy")
		}
	}
	for _, w := range a.pods {
		if value := w.object.Labels[names.LabelInject]; value != "" && value != "true" && value != "false" {
			a.report(w.object, diag.Warning, codeNoEffect, `metadata.labels["`+names.LabelInject+`"]`, `write "true" or "false"`,
				"the label %s has the value %s, which is ignored: the namespace and the policy decide", names.LabelInject, value)
		}
		if a.injects(w.object) && !w.pod.Proxy && !w.pod.HostNetwork {
			a.report(w.object, diag.Warning, codeNoProxy, "spec.containers", "replace it: run kubectl rollout restart for its controller",
				"the Pod has no proxy, although its labels or its namespace's ask for one")
		}
	}
}

// injectionState is the injection setting of a namespace.
type injectionState int

const (
	unlabelled injectionState = iota // labels of its Pods decide
	injected
	disabled // no Pod gets a proxy
)

// injectionOf returns the injection setting of a namespace. The webhooks select namespaces whose label says enabled,
// and for labelled Pods namespaces without the label.
func (x *index) injectionOf(namespace string) injectionState {
	if x.injections == nil {
		x.injections = map[string]injectionState{}
		for _, o := range x.objects {
			if o.Kind != kinds.Namespace || o.Cluster != "" {
				continue
			}
			switch word := o.Labels[names.LabelInjection]; {
			case word != "" && word != "enabled":
				x.injections[o.Name] = disabled
			case isSystem(o.Name, x.root): // labels of its Pods decide, whatever its own labels
			case word == "enabled" || o.Labels[names.LabelRevision] != "":
				x.injections[o.Name] = injected
			}
		}
	}
	return x.injections[namespace]
}

func isSystem(namespace, root string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == root
}

// injects reports whether a Pod gets a proxy when it is created.
func (x *index) injects(pod *kinds.Object) bool {
	by := x.injectionOf(pod.Namespace)
	if by == disabled {
		return false
	}
	value, labelled := pod.Labels[names.LabelInject]
	if !labelled {
		value = pod.Annotations[names.LabelInject]
	}
	// Values other than "true" and "false" are ignored, and an annotation "true" has no webhook called.
	return value != "false" && (by == injected || pod.Labels[names.LabelRevision] != "" || labelled && value == "true")
}
