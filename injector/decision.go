package injector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// skip returns why a pod gets no proxy, or nothing if it gets one. Which namespaces are asked about is a matter of the
// webhook's own selectors.
func (c *Config) skip(pod *corev1.Pod) string {
	// Of a pod with the host's network the proxy would redirect the traffic of the node.
	if pod.Spec.HostNetwork {
		return "the pod uses the network of its node"
	}
	if slices.Contains([]string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}, pod.Namespace) {
		return "nothing is injected in namespace " + pod.Namespace
	}
	for _, from := range []map[string]string{pod.Labels, pod.Annotations} {
		value, ok := from[names.LabelInject]
		if !ok {
			continue
		}
		if slices.Contains([]string{"y", "yes", "on"}, strings.ToLower(value)) {
			return ""
		}
		if asked, err := strconv.ParseBool(value); err == nil { // any other value says nothing
			if asked {
				return ""
			}
			return fmt.Sprintf("%s is %s", names.LabelInject, value)
		}
		break
	}
	set := labels.Set(pod.Labels)
	matches := func(s labels.Selector) bool { return s.Matches(set) }
	switch {
	case slices.ContainsFunc(c.never, matches):
		return "neverInjectSelector selects the pod"
	case slices.ContainsFunc(c.always, matches), c.enabled:
		return ""
	}
	return "the policy is disabled, and the pod does not ask for a proxy"
}
