package openness

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// accepted are the differences that are meant. A difference that none of them explains is a fault.
var accepted = []struct {
	Reason  string
	Applies func(World, Difference) bool
}{
	{
		"A route that cannot be used is left out, and the request goes to the service that was called, which the proxy may " +
			"call anyway. TLS to each cluster is compared by itself.",
		func(_ World, d Difference) bool { return d.Kind == Elsewhere },
	},
	{
		"A request to a port of the workload for which no Service is reaches the application by either cluster, past the " +
			"same filters.",
		func(_ World, d Difference) bool {
			return d.Kind == Leaves && strings.HasPrefix(d.Where, "in ") && strings.HasSuffix(d.Text, "istiod: InboundPassthroughCluster")
		},
	},
	{
		"A ServiceEntry that cannot be used is as none: ALLOW_ANY lets every host be called. Where a Sidecar or the mesh " +
			"says REGISTRY_ONLY the host is refused, and where a DestinationRule asks for TLS to the host, or a patch adds a " +
			"filter, this does not apply.",
		func(w World, d Difference) bool {
			leaves := d.Kind == Leaves || d.Kind == Passes && strings.HasPrefix(d.Text, "to PassthroughCluster; istiod: ") &&
				strings.Contains(d.Text, "has no endpoint that takes requests") && !strings.Contains(d.Text, "BlackHoleCluster") ||
				d.Kind == Filter && strings.HasPrefix(d.Text, "the connection passes to PassthroughCluster") && !w.has("EnvoyFilter")
			return leaves && strings.HasPrefix(d.Where, "out ") && w.has("ServiceEntry") && !w.rulesAnEntry()
		},
	},
	{
		"No client can send a header whose name has a space, or another character that names of headers do not have.",
		func(_ World, d Difference) bool {
			header, ok := strings.CutPrefix(d.Text, "a token is not looked for: header ")
			name, _, _ := strings.Cut(header, " ")
			return d.Kind == Token && ok && (strings.HasPrefix(header, "x a") || !names.HeaderName(name))
		},
	},
	{
		"No client can send a header whose name holds such a character, so nothing has to be taken off.",
		func(_ World, d Difference) bool {
			header, ok := strings.CutPrefix(d.Text, "what a caller sends is not taken off: payload in ")
			return d.Kind == Token && ok && !names.HeaderName(header)
		},
	},
	{
		"The authorities in the Secret of a certificate itself have a name of their own here.",
		func(_ World, d Difference) bool {
			return d.Kind == Unverified && strings.Contains(d.Text, "#ca ; istiod: ")
		},
	},
	{
		"A CUSTOM policy that cannot be evaluated refuses all, without an authorizer. Whether a request passes unasked is " +
			"compared by itself.",
		func(_ World, d Difference) bool {
			return d.Kind == Filter && d.Text == "envoy.filters.http.ext_authz is missing"
		},
	},
	{
		"A cluster of the workload's own port shows nothing of others. Which requests reach it is compared by itself.",
		func(_ World, d Difference) bool { return d.Kind == Visible && strings.HasPrefix(d.Where, "inbound|") },
	},
	{
		"A patch without content adds no filter here. With istiod it adds a filter without a name, which restricts nothing; " +
			"Envoy refuses the listener.",
		func(_ World, d Difference) bool { return d.Kind == Filter && d.Text == " is missing" },
	},
	{
		"No request can name a host with a line break. Envoy refuses the route configuration that istiod makes of it.",
		func(w World, d Difference) bool {
			_, authority, named := strings.Cut(d.Where, ", GET ")
			return (d.Kind == Leaves || d.Kind == Passes) && named && strings.Contains(authority, "\n") && w.has("VirtualService")
		},
	},
	{
		"A distribution over localities says which endpoints get requests, and not whether requests may be sent. One that " +
			"cannot be used is left out. With istiod no endpoint is left.",
		func(w World, d Difference) bool {
			return d.Kind == Passes && strings.HasPrefix(d.Where, "out ") && strings.HasSuffix(d.Text, "has no endpoint that takes requests") &&
				bytes.Contains(w.YAML(), []byte("distribute:"))
		},
	},
	{
		"A value that is not what the patch is for is left out: a filter as the value of a patch of virtual hosts, a route " +
			"as that of a patch of filters. With istiod it is in what proxies are sent, and Envoy refuses what holds it.",
		func(w World, d Difference) bool {
			marker, ok := strings.CutPrefix(d.Text, "what a patch put there is missing: ")
			if !ok {
				marker, ok = strings.CutSuffix(d.Text, " is missing")
			}
			return d.Kind == Filter && ok && slices.Contains(w.misfits(), marker)
		},
	},
	{
		"A TLS route without destinations refuses the connections that it takes, and takes the port as any TLS route does: " +
			"other connections go to the address that was called. With istiod it is as none.",
		func(w World, d Difference) bool {
			return d.Kind == Leaves && strings.Contains(d.Text, "to PassthroughCluster; istiod: ") && w.emptyTLSRoute()
		},
	},
	{
		"A TCP route that cannot be used refuses the connections that it takes, so a gateway listens for them. Which " +
			"connections pass is compared by itself.",
		func(w World, d Difference) bool {
			return d.Proxy == Gateway && d.Kind == Visible && d.Text == "a listener" && w.has("VirtualService")
		},
	},
	{
		"A Service can be called by its address although a ServiceEntry has its host, too. It can be called by its host with " +
			"both control planes.",
		func(w World, d Difference) bool {
			host, ok := strings.CutPrefix(d.Text, "the host ")
			_, err := netip.ParseAddr(host)
			return d.Kind == Visible && ok && err == nil && w.has("ServiceEntry")
		},
	},
	{
		"A ServiceEntry whose host has capital letters or a dot at its end can be called here. With istiod its routes lead to a " +
			"cluster that is not there.",
		func(w World, d Difference) bool {
			return (d.Kind == Passes && strings.HasSuffix(d.Text, "is not there") || d.Kind == Visible && d.Text == "a cluster") &&
				slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
					hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hosts")
					return o.GetKind() == "ServiceEntry" && slices.ContainsFunc(hosts, func(h string) bool {
						lower := strings.TrimSuffix(strings.ToLower(h), ".")
						return lower != h && (strings.HasSuffix(d.Where, "|"+lower) || strings.Contains(d.Text, "|"+lower))
					})
				})
		},
	},
	{
		"The authorities of a Secret whose name no Secret can have are not there with either control plane, and no client is " +
			"trusted.",
		func(_ World, d Difference) bool {
			ours, istiods, ok := strings.Cut(strings.TrimPrefix(d.Text, "another authority: kubernetes://"), "-cacert ; istiod: kubernetes://")
			notASCII := strings.ContainsFunc(ours, func(c rune) bool { return c > 0x7f })
			return d.Kind == Unverified && ok && notASCII && ours == strings.TrimSpace(istiods)
		},
	},
	{
		"The authority that caCertCredentialName of a DestinationRule names is used here. istiod 1.31 does not have the field.",
		func(w World, d Difference) bool {
			name, _, ok := strings.Cut(strings.TrimPrefix(d.Text, "another authority: kubernetes://"), "-cacert ; istiod: ")
			return d.Kind == Unverified && ok && slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
				text, err := o.MarshalJSON()
				return err == nil && o.GetKind() == "DestinationRule" && bytes.Contains(text, []byte(`"caCertCredentialName":"`+name+`"`))
			})
		},
	},
	{
		"No service account has a name with a space, so no certificate has such an identity. It is verified as it is written; " +
			"istiod leaves out the space.",
		func(_ World, d Difference) bool {
			ours, istiods, ok := strings.Cut(strings.TrimPrefix(d.Text, "more names: "), "; istiod: ")
			plain := strings.NewReplacer(" ", "")
			return d.Kind == Unverified && ok && strings.Contains(ours, "/sa/") && plain.Replace(ours) == plain.Replace(istiods)
		},
	},
	{
		"Clients of a Gateway may have a certificate of any authority that its references name, as the Gateway API allows. " +
			"istiod takes one reference alone. Whose certificates are trusted is compared by itself.",
		func(w World, d Difference) bool {
			closed := d.Kind == Passes && strings.Contains(d.Text, "istiod: 0, no listener takes connections to port") ||
				d.Kind == Visible && d.Text == "a listener"
			return d.Proxy == Gateway && closed && slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
				references, _, _ := unstructured.NestedSlice(o.Object, "spec", "tls", "frontend", "default", "validation", "caCertificateRefs")
				return len(references) > 1
			})
		},
	},
	{
		"A DestinationRule whose host has capital letters or a dot at its end is in force here, with the TLS that it says. With istiod " +
			"it is for " +
			"no service, and calls are plaintext, or mutual TLS of the mesh if both sides have a sidecar.",
		func(w World, d Difference) bool {
			return (d.Kind == Unverified || d.Kind == Plaintext) && slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
				host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
				name, _, _ := strings.Cut(strings.ToLower(host), ".")
				odd := strings.ToLower(host) != host || strings.HasSuffix(host, ".")
				return o.GetKind() == "DestinationRule" && odd && strings.Contains(d.Where, name+".")
			})
		},
	},
	{
		"A host with a dot at its end is the host without it. istiod's virtual host is for requests alone that write the dot.",
		func(w World, d Difference) bool {
			host, ok := strings.CutPrefix(d.Text, "the host ")
			return ok && d.Kind == Visible && slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
				hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hosts")
				return (o.GetKind() == "VirtualService" || o.GetKind() == "ServiceEntry") && slices.ContainsFunc(hosts, func(h string) bool {
					return strings.ToLower(h) == host+"."
				})
			})
		},
	},
	{
		"istiod keeps the trust domain that it was started with in the names of Services' certificates; here the one in " +
			"force is verified at once.",
		func(w World, d Difference) bool {
			return d.Kind == Unverified && strings.HasPrefix(w.Name, "open/mesh-trust-domains") && strings.Contains(d.Text, "more names")
		},
	},
}

func (w World) has(kind string) bool {
	return slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
}

// rulesAnEntry reports whether a DestinationRule is for a host of a ServiceEntry.
func (w World) rulesAnEntry() bool {
	var hosts []string
	for _, o := range w.Objects {
		if list, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hosts"); o.GetKind() == "ServiceEntry" {
			hosts = append(hosts, list...)
		}
	}
	return slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		return o.GetKind() == "DestinationRule" && (strings.Contains(host, "*") || slices.Contains(hosts, host))
	})
}

// emptyTLSRoute reports whether a TLS route of a VirtualService has no destinations.
func (w World) emptyTLSRoute() bool {
	return slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
		routes, _, _ := unstructured.NestedSlice(o.Object, "spec", "tls")
		return o.GetKind() == "VirtualService" && slices.ContainsFunc(routes, func(r any) bool {
			route, _ := r.(map[string]any)
			destinations, _ := route["route"].([]any)
			return len(destinations) == 0
		})
	})
}

// vital are fields, by what a patch is for, of which a value needs one: without, Envoy refuses what holds it.
var vital = map[any][]string{
	"VIRTUAL_HOST":    {"domains"},
	"HTTP_ROUTE":      {"match"},
	"LISTENER_FILTER": {"typed_config", "typedConfig", "config_discovery", "configDiscovery"},
	"NETWORK_FILTER":  {"typed_config", "typedConfig", "config_discovery", "configDiscovery"},
	"HTTP_FILTER":     {"typed_config", "typedConfig", "config_discovery", "configDiscovery"},
}

// misfits returns what marks the values of patches that are not what the patch is for: their names, and the headers
// that they remove where an added virtual host has neither a name nor domains.
func (w World) misfits() (list []string) {
	for _, o := range w.Objects {
		patches, _, _ := unstructured.NestedSlice(o.Object, "spec", "configPatches")
		for _, p := range patches {
			p, _ := p.(map[string]any)
			value, _, _ := unstructured.NestedMap(p, "patch", "value")
			fields := vital[p["applyTo"]]
			if len(fields) == 0 || slices.ContainsFunc(fields, func(f string) bool { return value[f] != nil }) {
				continue
			}
			if name, _ := value["name"].(string); name != "" {
				list = append(list, name)
			}
			if operation, _, _ := unstructured.NestedString(p, "patch", "operation"); operation == "ADD" || strings.HasPrefix(operation, "INSERT_") {
				headers, _, _ := unstructured.NestedStringSlice(value, "request_headers_to_remove")
				list = append(list, headers...)
			}
		}
	}
	return list
}

// Unexplained returns the differences that are not accepted.
func Unexplained(w World, all []Difference) (out []Difference) {
	for _, d := range all {
		if Reason(w, d) == "" {
			out = append(out, d)
		}
	}
	return out
}

// Reason returns why a difference is accepted, empty if it is not.
func Reason(w World, d Difference) string {
	for _, a := range accepted {
		if a.Applies(w, d) {
			return a.Reason
		}
	}
	return ""
}
