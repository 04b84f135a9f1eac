package debug

import (
	"encoding/json"
	"net/url"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// authorizations are the AuthorizationPolicies by namespace, as Istio shows them, and beyond that those that apply to
// each connected proxy.
type authorizations struct {
	Policies struct {
		ByNamespace   map[string][]authorizationPolicy `json:"namespace_to_policies"`
		RootNamespace string                           `json:"root_namespace"`
	} `json:"authorization_policies"`
	Proxies map[string][]string `json:"proxies"` // "namespace/name" of policies, by proxy, in the order of their actions
}

// authorizationPolicy is one policy.
type authorizationPolicy struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec"`
	Position    string            `json:"position,omitempty"` // where it was read
}

// authorizationz shows the policies, and which of them apply to the connected proxies. With a proxyID it shows that
// proxy, and its policies, alone.
func (a *API) authorizationz(query url.Values) (any, error) {
	out := authorizations{Proxies: map[string][]string{}}
	out.Policies.ByNamespace = map[string][]authorizationPolicy{}
	s := a.o.Snapshot()
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
		if a.o.Selected != nil {
			for _, o := range a.o.Selected(s, c.Proxy, kinds.AuthorizationPolicy) {
				list, applies[o.Key] = append(list, o.Namespace+"/"+o.Name), true
			}
		}
		out.Proxies[c.Proxy.ID] = list
	}
	for _, o := range a.sorted() {
		spec, ok := o.Spec.(proto.Message)
		if o.Kind != kinds.AuthorizationPolicy || !ok || one && !applies[o.Key] {
			continue
		}
		text, err := protoJSON(spec)
		if err != nil {
			return nil, err
		}
		m := describeMeta(o)
		out.Policies.ByNamespace[o.Namespace] = append(out.Policies.ByNamespace[o.Namespace], authorizationPolicy{o.Name, o.Namespace, m.Annotations, text, o.Position})
	}
	return out, nil
}
