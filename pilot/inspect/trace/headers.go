package trace

import (
	"cmp"
	"maps"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// setHeader sets a header, without changing the headers of other requests. Its value is known.
func (r *Request) setHeader(name, value string) {
	r.ownHeaders()
	r.Headers[name] = value
	delete(r.unclear, name)
}

// removeHeader removes a header.
func (r *Request) removeHeader(name string) {
	r.ownHeaders()
	delete(r.Headers, name)
	delete(r.unclear, name)
}

// blur says that the value of a header depends on something, unless on is empty.
func (r *Request) blur(name, on string) {
	if on != "" {
		r.ownHeaders()
		r.unclear[name] = on
	}
}

// anyHeader is the name of all headers in what is not known.
const anyHeader = "*"

// unclearBy returns what a header depends on, or "" if its value is known.
func (r Request) unclearBy(name string) string {
	return cmp.Or(r.unclear[name], r.unclear[anyHeader])
}

// ownHeaders lets the request have headers that no other request shares.
func (r *Request) ownHeaders() {
	headers, unclear := map[string]string{}, map[string]string{}
	maps.Copy(headers, r.Headers)
	maps.Copy(unclear, r.unclear)
	r.Headers, r.unclear = headers, unclear
}

// addHeader changes a header as an option says. The value of a command in percent signs is not known.
func (r *Request) addHeader(o *corev3.HeaderValueOption) {
	name, value := strings.ToLower(o.GetHeader().GetKey()), o.GetHeader().GetValue()
	had, there := r.Headers[name]
	on := ""
	if strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
		on = "the value of header " + name + ", which is " + value
	}
	switch action := o.GetAppendAction(); {
	case !there && action != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS, there && (action ==
		corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD || action == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS):
		r.setHeader(name, strings.ReplaceAll(value, "%%", "%"))
		r.blur(name, on)
	case there && action == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		if on == "" {
			on = r.unclear[name]
		}
		r.setHeader(name, had+","+strings.ReplaceAll(value, "%%", "%"))
		r.blur(name, on)
	}
}
