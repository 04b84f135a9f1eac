package matches

import (
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Request is the set of requests that a match of a rule takes.
type Request struct {
	path       Text // the zero Text for every path
	conditions []condition
	port       uint32   // 0 for every port
	namespace  string   // namespace of clients; "" for all
	gateways   []string // "ns/name" or mesh; nil for all of the VirtualService
	labels     map[string]string

	catchAll bool
}

// condition is what a match demands of one header, without headers also of its absence, or of one query parameter.
type condition struct {
	part
	values Text
}

type part struct {
	of   byte // header, absent or parameter
	name string
}

const (
	header    = 'h'
	absent    = 'a' // of headers without some values
	parameter = 'p'
)

// RequestOf returns the requests that a match of a VirtualService in a namespace takes. A nil match takes all.
func RequestOf(m *networkingv1alpha3.HTTPMatchRequest, namespace string) *Request {
	r := &Request{port: m.GetPort(), namespace: m.GetSourceNamespace(), labels: m.GetSourceLabels()}
	if m == nil {
		r.catchAll = true
		return r
	}
	r.path = TextOf(m.Uri)
	if m.IgnoreUriCase && m.Uri.GetRegex() == "" { // Envoy compares regular expressions by case all the same
		r.path = r.path.ignoringCase()
	}
	everyPath := Text{form: prefix, text: "/"}
	r.catchAll = r.path.form == every || r.path == everyPath
	if r.path.Contains(everyPath) {
		r.path = Text{}
	}
	for name, s := range map[string]*networkingv1alpha3.StringMatch{":method": m.Method, ":scheme": m.Scheme, ":authority": m.Authority} {
		if s != nil {
			r.add(part{header, name}, s)
		}
	}
	for name, s := range m.Headers {
		r.add(part{header, headerName(name)}, s)
	}
	for name, s := range m.WithoutHeaders {
		r.add(part{absent, headerName(name)}, s)
	}
	for name, s := range m.QueryParams {
		r.add(part{parameter, name}, s)
	}
	r.catchAll = r.catchAll && len(r.conditions) == 0
	for _, g := range m.Gateways {
		r.gateways = append(r.gateways, names.Gateway(g, namespace))
	}
	return r
}

// headerName returns the name of a header in lower case. Names of claims are not headers.
func headerName(name string) string {
	if strings.HasPrefix(name, "@") {
		return name
	}
	return strings.ToLower(name)
}

func (r *Request) add(p part, m *networkingv1alpha3.StringMatch) {
	r.conditions = append(r.conditions, condition{p, TextOf(m)})
}

// CatchAll reports whether it takes every request of its port, gateways and clients, by a prefix and not by a regular
// expression. A gateway has such a route behind those of all VirtualServices of a host.
func (r *Request) CatchAll() bool { return r.catchAll }

// On returns the requests that come by a gateway, or nil if there are none.
func (r *Request) On(gateway string) *Request {
	if len(r.gateways) == 0 {
		return r
	}
	if !slices.Contains(r.gateways, gateway) {
		return nil
	}
	on := *r
	on.gateways = nil
	return &on
}

// Contains reports whether r takes every request that o takes.
func (r *Request) Contains(o *Request) bool {
	switch {
	case r.port != 0 && r.port != o.port, r.namespace != "" && r.namespace != o.namespace,
		len(r.gateways) > 0 && len(o.gateways) == 0,
		len(r.gateways) > 0 && slices.ContainsFunc(o.gateways, func(g string) bool { return !slices.Contains(r.gateways, g) }):
		return false
	}
	for name, value := range r.labels {
		if other, ok := o.labels[name]; !ok || other != value {
			return false
		}
	}
	if !r.path.Contains(o.path) {
		return false
	}
	for _, c := range r.conditions {
		if !slices.ContainsFunc(o.conditions, c.follows) {
			return false
		}
	}
	return true
}

// follows reports whether a request that meets condition o also meets c.
func (c condition) follows(o condition) bool {
	switch {
	case c.part != o.part:
		return false
	case c.of != absent:
		return c.values.Contains(o.values)
	case o.values.form == every: // there is no such header, which then has the empty value
		return c.values.form == every || !c.values.hasEmpty()
	}
	return c.values.form != every && o.values.Contains(c.values)
}
