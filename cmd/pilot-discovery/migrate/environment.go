package migrate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/discovery"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// elsewhere is shown as the value of a variable whose value is in an object that was not given.
const elsewhere = "(from elsewhere)"

// environment is the environment of a container.
type environment struct {
	known   []string // NAME=value
	unknown []string // NAME=(from elsewhere)
	missing []string // ConfigMaps and Secrets of envFrom that were not given
}

// environmentOf returns the environment of a container. It takes the values of ConfigMaps from the given objects.
func environmentOf(c map[string]any, namespace string, around []migration.Object) (e environment) {
	configMap := func(name string) (map[string]string, bool) {
		for _, o := range around {
			if o.GetKind() == "ConfigMap" && o.GetName() == name && o.GetNamespace() == namespace {
				data, _, _ := unstructured.NestedStringMap(o.Object, "data")
				return data, true
			}
		}
		return nil, false
	}
	from, _, _ := unstructured.NestedSlice(c, "envFrom")
	for _, x := range from {
		m, _ := x.(map[string]any)
		prefix, _, _ := unstructured.NestedString(m, "prefix")
		name, _, _ := unstructured.NestedString(m, "configMapRef", "name")
		data, ok := configMap(name)
		if !ok {
			kind := "ConfigMap"
			if name == "" {
				kind = "Secret"
				name, _, _ = unstructured.NestedString(m, "secretRef", "name")
			}
			e.missing = append(e.missing, kind+" "+name)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			e.known = append(e.known, prefix+key+"="+data[key])
		}
	}
	list, _, _ := unstructured.NestedSlice(c, "env")
	for _, x := range list {
		m, ok := x.(map[string]any)
		if !ok {
			continue
		}
		name := fmt.Sprint(m["name"])
		if m["valueFrom"] == nil {
			value, _ := m["value"].(string)
			e.known = append(e.known, name+"="+value)
			continue
		}
		of, _, _ := unstructured.NestedString(m, "valueFrom", "configMapKeyRef", "name")
		key, _, _ := unstructured.NestedString(m, "valueFrom", "configMapKeyRef", "key")
		if data, ok := configMap(of); ok {
			e.known = append(e.known, name+"="+data[key])
		} else {
			e.unknown = append(e.unknown, name+"="+elsewhere)
		}
	}
	return e
}

// addSettings adds points about the variables and the arguments of an istiod that have no effect here, or with which
// this server would not start. It returns the known environment, with the variables that were read.
func addSettings(v *migration.Verdict, is environment, args []string, where string) *env.Env {
	const environ, arguments, check = "environment of istiod", "arguments of istiod", "remove it, or check that nothing depends on it"
	for _, from := range is.missing {
		v.Add(environ, migration.Point{InTheWay: true, Text: "envFrom: the variables of " + from + " are not known here",
			Fix: "compare them with docs/reference/environment.md", Where: where})
	}
	e := env.New(is.known)
	idle, err := discovery.Judge(&e, args)
	unknown := env.New(is.unknown)
	unknown.Read = e.Read
	for _, x := range append(e.Foreign(), unknown.Foreign()...) {
		value := e.Getenv(x.Name)
		p := migration.Point{InTheWay: !x.Harmless, Where: where}
		if unknown.Getenv(x.Name) != "" {
			value = elsewhere
		}
		p.Text = fmt.Sprintf("%s=%s has no effect here: %s", x.Name, value, x.Why)
		if p.Fix = check; x.Harmless {
			p.Fix = "remove it"
		}
		v.Add(environ, p)
	}
	for _, w := range e.Warnings {
		v.Add(environ, migration.Point{InTheWay: true, Text: w, Where: where})
	}
	for _, name := range idle {
		v.Add(arguments, migration.Point{InTheWay: true, Text: "--" + name + " has no effect here", Fix: check, Where: where})
	}
	if err != nil {
		v.Add(environ, migration.Point{InTheWay: true, Text: "the server would not start: " + err.Error(), Where: where})
	}
	return &e
}
