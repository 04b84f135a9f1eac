package deployment

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// resource is a kind of generated objects.
type resource struct {
	*kinds.Kind
	key   string // key in ConfigMaps with parameters
	asked bool   // created only if parameters have the key
	typed any    // Go type, whose tags define how two objects are merged
}

// resources returns the kinds in the order in which their objects are written.
func resources() []resource {
	kind := func(group, version, name, plural string) *kinds.Kind {
		return &kinds.Kind{Group: group, Versions: []string{version}, Name: name, Plural: plural}
	}
	return []resource{
		{kind("", "v1", "ServiceAccount", "serviceaccounts"), "serviceAccount", false, corev1.ServiceAccount{}},
		{kind("apps", "v1", "Deployment", "deployments"), "deployment", false, appsv1.Deployment{}},
		{kind("", "v1", "Service", "services"), "service", false, corev1.Service{}},
		{kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
			"horizontalPodAutoscaler", true, autoscalingv2.HorizontalPodAutoscaler{}},
		{kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"), "podDisruptionBudget", true, policyv1.PodDisruptionBudget{}},
	}
}

// apiVersion returns the apiVersion of a kind's objects.
func apiVersion(k *kinds.Kind) string {
	return schema.GroupVersion{Group: k.Group, Version: k.Versions[0]}.String()
}

// Parameters are the parameters in one ConfigMap.
type Parameters struct {
	Name string // for error messages
	Data map[string]string
}

// reference returns the key of the ConfigMap that a Gateway names. It returns false if it names none.
func reference(g *gatewayv1.Gateway, namespace string) (kinds.Key, bool, error) {
	if g.Spec.Infrastructure == nil || g.Spec.Infrastructure.ParametersRef == nil {
		return kinds.Key{}, false, nil
	}
	r := g.Spec.Infrastructure.ParametersRef
	if r.Group != "" && r.Group != "core" || r.Kind != "ConfigMap" {
		return kinds.Key{}, false,
			fmt.Errorf("spec.infrastructure.parametersRef: %s/%s cannot be read: name a ConfigMap, with the group empty", r.Group, r.Kind)
	}
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: namespace, Name: r.Name}, true, nil
}

// merge returns the template's objects with the parameters merged into them one after the other, in the order of
// resources. It drops the optional objects that no parameters request.
func merge(objects []map[string]any, list []Parameters) (out []map[string]any, err error) {
	known := resources()
	for _, p := range list {
		for _, key := range slices.Sorted(maps.Keys(p.Data)) {
			if !slices.ContainsFunc(known, func(r resource) bool { return r.key == key }) {
				keys := lists.Map(known, func(r resource) string { return r.key })
				return nil, fmt.Errorf("%s: data.%s: there is no such object: write one of %s%s", p.Name,
					key, strings.Join(keys, ", "), meant(key, keys))
			}
		}
	}
	for _, o := range objects {
		if !slices.ContainsFunc(known, func(r resource) bool { return is(o, r) }) {
			return nil, fmt.Errorf("the template makes a %v %v, which is not deployed for Gateways", o["apiVersion"], o["kind"])
		}
	}
	for _, r := range known {
		i := slices.IndexFunc(objects, func(o map[string]any) bool { return is(o, r) })
		asked := slices.ContainsFunc(list, func(p Parameters) bool { return p.Data[r.key] != "" })
		if i < 0 || r.asked && !asked {
			if asked {
				return nil, fmt.Errorf("data.%s: the template makes no %s", r.key, r.Name)
			}
			continue
		}
		o := objects[i]
		for _, p := range list {
			if text := p.Data[r.key]; text != "" {
				if o, err = over(o, text, r); err != nil {
					return nil, fmt.Errorf("%s: data.%s: %w", p.Name, r.key, err)
				}
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func meant(key string, keys []string) string {
	if near := diag.Nearest(key, keys); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func is(o map[string]any, r resource) bool {
	return o["kind"] == r.Name && o["apiVersion"] == apiVersion(r.Kind)
}

// over returns an object with YAML text merged into it, by the rules of a strategic merge.
func over(o map[string]any, text string, r resource) (map[string]any, error) {
	patch, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil || fields == nil {
		return nil, errors.New("no object: write its fields, such as spec")
	}
	from, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(from, patch, r.typed)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := json.Unmarshal(merged, &out); err != nil {
		return nil, err
	}
	was, _ := o["metadata"].(map[string]any)
	now, _ := out["metadata"].(map[string]any)
	for _, field := range []string{"apiVersion", "kind"} {
		if out[field] != o[field] {
			return nil, fmt.Errorf("%s is %v, and may not be %v: leave it out", field, o[field], out[field])
		}
	}
	for _, field := range []string{"name", "namespace"} {
		if now[field] != was[field] {
			return nil, fmt.Errorf("metadata.%s is %v, and may not be %v: leave it out", field, was[field], now[field])
		}
	}
	return out, nil
}
