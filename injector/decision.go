package injector

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// skip returns why a pod gets no proxy, or "" if it gets one. The warnings name values that are neither true nor false.
// The selectors of the webhook decide for which namespaces the API server calls it.
func (c *Config) skip(pod *corev1.Pod) (why string, warnings []string) {
	// On the host's network the proxy would redirect the traffic of the node.
	if pod.Spec.HostNetwork {
		return "the pod uses the network of its node", nil
	}
	if slices.Contains([]string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}, pod.Namespace) {
		return "nothing is injected in namespace " + pod.Namespace, nil
	}
	kind := "label"
	value, ok := pod.Labels[names.LabelInject]
	if !ok {
		kind, value = "annotation", pod.Annotations[names.LabelInject]
	}
	switch value {
	case "true":
		return "", nil
	case "false":
		return fmt.Sprintf("%s is %s", names.LabelInject, value), nil
	case "":
	default:
		warnings = []string{fmt.Sprintf(
			"%s %s has the value %s, which is ignored: the namespace and the policy decide; write \"true\" or \"false\"",
			kind, names.LabelInject, quoted(value))}
	}
	set := labels.Set(pod.Labels)
	matches := func(s labels.Selector) bool { return s.Matches(set) }
	switch {
	case slices.ContainsFunc(c.never, matches):
		return "neverInjectSelector selects the pod", warnings
	case slices.ContainsFunc(c.always, matches), c.enabled:
		return "", warnings
	}
	return "the policy is disabled, and the pod does not ask for a proxy", warnings
}
