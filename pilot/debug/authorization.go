package debug

import (
	"encoding/json"
	"net/url"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// authorizations are the AuthorizationPolicies by namespace, as istiod shows them, and in addition the policies that
// apply to each connected proxy.
type authorizations struct {
	Policies policies            `json:"authorization_policies"`
	Proxies  map[string][]string `json:"proxies"` // "namespace/name" of policies by proxy, in the order of their actions
}

type policies struct {
	ByNamespace   map[string][]policy `json:"namespace_to_policies"`
	RootNamespace string              `json:"root_namespace"`
}

// policy is an AuthorizationPolicy or a Telemetry in istiod's format.
type policy struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec"`
	Position    string            `json:"position,omitempty"` // file:line:column
}

// authorizationz returns the policies, and which of them apply to the connected proxies. With proxyID it returns only
// that proxy and its policies.
func (a *API) authorizationz(query url.Values) (any, error) {
	out := authorizations{policies{ByNamespace: map[string][]policy{}}, map[string][]string{}}
	s := a.o.World.Snapshot()
	if s == nil {
		return out, nil
	}
	out.Policies.RootNamespace = s.RootNamespace()
	clients := a.o.Proxies.Clients()
	one := query.Get("proxyID") != ""
	if one {
		c, err := a.proxy(query)
		if err != nil {
			return nil, err
		}
		clients = []xds.Client{c}
	}
	applies := map[kinds.Key]bool{}
	for _, c := range clients {
		list := []string{}
		if a.o.Translator != nil {
			for _, o := range a.o.Translator.Selected(s, c.Proxy, kinds.AuthorizationPolicy) {
				list, applies[o.Key] = append(list, o.Namespace+"/"+o.Name), true
			}
		}
		out.Proxies[c.Proxy.ID] = list
	}
	var err error
	out.Policies.ByNamespace, err = a.policies(kinds.AuthorizationPolicy, func(o *kinds.Object) bool { return !one || applies[o.Key] })
	return out, err
}

// policies returns the wanted objects of one kind by namespace.
func (a *API) policies(kind *kinds.Kind, wanted func(*kinds.Object) bool) (map[string][]policy, error) {
	out := map[string][]policy{}
	for _, o := range a.sorted() {
		spec, ok := o.Spec.(proto.Message)
		if o.Kind != kind || !ok || !wanted(o) {
			continue
		}
		text, err := protoJSON(spec)
		if err != nil {
			return nil, err
		}
		out[o.Namespace] = append(out[o.Namespace], policy{o.Name, o.Namespace, describeMeta(o).Annotations, text, o.Position})
	}
	return out, nil
}

func every(*kinds.Object) bool { return true }

// telemetries are the Telemetry objects by namespace, in istiod's format.
type telemetries struct {
	Telemetries struct {
		ByNamespace   map[string][]policy `json:"namespace_to_telemetries"`
		RootNamespace string              `json:"root_namespace"`
	} `json:"telemetries"`
}

func (a *API) telemetryz(url.Values) (any, error) {
	var out telemetries
	if s := a.o.World.Snapshot(); s != nil {
		out.Telemetries.RootNamespace = s.RootNamespace()
	}
	var err error
	out.Telemetries.ByNamespace, err = a.policies(kinds.Telemetry, every)
	return out, err
}
