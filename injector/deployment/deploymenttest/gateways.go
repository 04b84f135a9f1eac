package deploymenttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
)

// Compare runs a subtest for each Gateway of a file. A subtest fails if the injector's templates make other objects
// than istiod applied, as recorded in the file.
func Compare(t *testing.T, file string, i *injector.Injector) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var gateways, sets []*kinds.Object
	maps, defaults := map[string]deployment.Parameters{}, map[string]deployment.Parameters{}
	for at, doc := range documents(t, a.Files[0].Data) {
		o := &kinds.Object{Created: time.Unix(int64(at), 0)}
		var meta struct {
			Kind     string
			Metadata struct {
				Name, Namespace     string
				Labels, Annotations map[string]string
			}
		}
		unmarshal(t, doc, &meta)
		o.Name, o.Namespace = meta.Metadata.Name, meta.Metadata.Namespace
		o.Labels, o.Annotations = meta.Metadata.Labels, meta.Metadata.Annotations
		switch meta.Kind {
		case "Gateway":
			o.Kind, o.UID, o.Spec = kinds.KubeGateway, "uid-of-"+o.Name, &gatewayv1.Gateway{}
			unmarshal(t, doc, o.Spec)
			gateways = append(gateways, o)
		case "ListenerSet":
			o.Kind, o.Spec = kinds.ListenerSet, &gatewayv1.ListenerSet{}
			unmarshal(t, doc, o.Spec)
			sets = append(sets, o)
		case "ConfigMap":
			var m corev1.ConfigMap
			unmarshal(t, doc, &m)
			p := deployment.Parameters{Name: "ConfigMap " + o.Name, Data: m.Data}
			maps[o.Namespace+"/"+o.Name] = p
			if class := o.Labels[deployment.DefaultsLabel]; class != "" {
				defaults[class] = p
			}
		}
	}
	if len(gateways) < 8 {
		t.Fatal("want eight Gateways or more")
	}
	for _, o := range gateways {
		t.Run(o.Name, func(t *testing.T) {
			spec := o.Spec.(*gatewayv1.Gateway).Spec
			var list []deployment.Parameters
			if p, ok := defaults[string(spec.GatewayClassName)]; ok {
				list = append(list, p)
			}
			if i := spec.Infrastructure; i != nil && i.ParametersRef != nil {
				list = append(list, maps[o.Namespace+"/"+i.ParametersRef.Name])
			}
			made, err := deployment.Make(t.Context(), deployment.Needs{
				Gateway: o, ListenerSets: sets, World: nothing{}, Parameters: list,
				Cluster: "Kubernetes", Version: 137,
				Templates: i,
			})
			if err != nil {
				t.Fatal(err)
			}
			var want [][]byte
			for _, f := range a.Files {
				if f.Name == "istiod/"+o.Name {
					want = documents(t, f.Data)
				}
			}
			if len(want) < 3 || len(want) != len(made) {
				t.Fatalf("%d objects, istiod applied %d", len(made), len(want))
			}
			for n, doc := range want {
				var theirs, ours any
				unmarshal(t, doc, &theirs)
				text, err := json.Marshal(made[n])
				if err != nil {
					t.Fatal(err)
				}
				unmarshal(t, text, &ours)
				for _, d := range differences(made[n].GetKind(), theirs, ours) {
					t.Error(d)
				}
			}
		})
	}
}

// nothing is a World without objects.
type nothing struct{}

func (nothing) ObjectsOf(*kinds.Kind) []*kinds.Object { return nil }
func (nothing) Object(kinds.Key) *kinds.Object        { return nil }

func documents(t *testing.T, text []byte) (list [][]byte) {
	t.Helper()
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) > 0 {
			list = append(list, doc)
		}
	}
	return list
}

func unmarshal(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// differences returns the paths at which two JSON values differ. A null field equals a missing or empty one.
func differences(at string, theirs, ours any) (list []string) {
	switch a := theirs.(type) {
	case map[string]any:
		b, ok := ours.(map[string]any)
		if !ok {
			break
		}
		for k := range a {
			if m, ok := b[k].(map[string]any); a[k] != nil || b[k] != nil && !(ok && len(m) == 0) {
				list = append(list, differences(at+"."+k, a[k], b[k])...)
			}
		}
		for k := range b {
			if _, ok := a[k]; !ok {
				list = append(list, fmt.Sprintf("%s.%s: istiod has none, made was %v", at, k, b[k]))
			}
		}
		return list
	case []any:
		b, ok := ours.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			list = append(list, differences(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])...)
		}
		return list
	case string:
		if b, ok := ours.(string); ok && strings.TrimSpace(a) == strings.TrimSpace(b) {
			return nil
		}
	}
	if !reflect.DeepEqual(theirs, ours) {
		list = append(list, fmt.Sprintf("%s: istiod applied %v, made was %v", at, theirs, ours))
	}
	return list
}
