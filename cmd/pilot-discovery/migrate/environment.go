package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/settings"
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

// setting is what is to be said about variables or an argument of an istiod: they have no effect here, or this server
// would not start with them.
type setting struct {
	section   string   // of the verdict
	variables []string // names; empty for an argument
	migration.Point
}

// judgeEnvironment returns what is to be said about the variables and the arguments of an istiod. It also returns the
// known environment.
func judgeEnvironment(is environment, args []string) (list []setting, e env.Env) {
	const environ, arguments, check = "environment of istiod", "arguments of istiod", "remove it, or check that nothing depends on it"
	for _, from := range is.missing {
		list = append(list, setting{section: environ, Point: migration.Point{InTheWay: true,
			Text: "envFrom: the variables of " + from + " are not known here", Fix: "compare them with docs/reference/environment.md"}})
	}
	e, idle, wrong := judge(is.known, args)
	unknown := env.New(is.unknown)
	unknown.Read = e.Read
	for _, x := range append(e.Foreign(), unknown.Foreign()...) {
		p := migration.Point{InTheWay: x.Effect != settings.Harmless, Fix: check}
		if x.Effect == settings.Harmless {
			p.Fix = "remove it"
		}
		p.Text = fmt.Sprintf("%s=%s has no effect here: %s", x.Name, cmp.Or(unknown.Getenv(x.Name), e.Getenv(x.Name)), x.Why)
		list = append(list, setting{environ, []string{x.Name}, p})
	}
	for _, text := range wrong {
		s := setting{section: environ, Point: migration.Point{InTheWay: true, Text: text}}
		for n, variable := range is.known {
			others := slices.Delete(slices.Clone(is.known), n, n+1)
			if _, _, still := judge(others, args); !slices.Contains(still, text) {
				name, _, _ := strings.Cut(variable, "=")
				s.variables = append(s.variables, name)
			}
		}
		list = append(list, s)
	}
	for _, name := range idle {
		p := migration.Point{InTheWay: true, Text: "--" + name + " has no effect here", Fix: check}
		list = append(list, setting{section: arguments, Point: p})
	}
	return list, e
}

// judge returns an environment with the variables that this server reads, the names of arguments that have no effect
// here, and what is wrong with both.
func judge(environ, args []string) (e env.Env, idle, wrong []string) {
	e = env.New(environ)
	idle, err := discovery.Judge(&e, args)
	wrong = e.Warnings
	if err != nil {
		wrong = append(wrong, "the server would not start: "+err.Error())
	}
	return e, idle, wrong
}
