package openness

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
			"says REGISTRY_ONLY the host is refused, and where a DestinationRule asks for TLS this does not apply.",
		func(w World, d Difference) bool {
			leaves := d.Kind == Leaves || d.Kind == Passes && strings.HasPrefix(d.Text, "to PassthroughCluster; istiod: ") &&
				strings.Contains(d.Text, "has no endpoint that takes requests") && !strings.Contains(d.Text, "BlackHoleCluster")
			return leaves && strings.HasPrefix(d.Where, "out ") && w.has("ServiceEntry") && !w.has("DestinationRule")
		},
	},
	{
		"Where keys cannot be used, a key set takes their place whose private key does not exist: no token is valid.",
		func(_ World, d Difference) bool {
			return d.Kind == Token && strings.HasPrefix(d.Text, "other keys of issuer") && strings.Contains(d.Text, "nobody")
		},
	},
	{
		"No client can send a header whose name has a space.",
		func(_ World, d Difference) bool {
			return d.Kind == Token && strings.HasPrefix(d.Text, "a token is not looked for: header x a")
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
		"A VirtualService is as none for a host that begins with an underscore: no Service has that host, and ALLOW_ANY lets " +
			"it be called. Where the VirtualService answers requests itself, this does not apply.",
		func(w World, d Difference) bool {
			_, odd, _ := strings.Cut(d.Where, " _") // the authority of a request
			return d.Kind == Leaves && odd != "" && strings.HasPrefix(d.Where, "out ") && strings.HasPrefix(d.Text, "to PassthroughCluster;") &&
				w.has("VirtualService")
		},
	},
	{
		"A DestinationRule whose host has capital letters is in force here, with the TLS that it says. With istiod it is for " +
			"no service, and calls are plaintext, or mutual TLS of the mesh if both sides have a sidecar.",
		func(w World, d Difference) bool {
			return (d.Kind == Unverified || d.Kind == Plaintext) && slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool {
				host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
				name, _, _ := strings.Cut(strings.ToLower(host), ".")
				return o.GetKind() == "DestinationRule" && strings.ToLower(host) != host && strings.Contains(d.Where, name+".")
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
