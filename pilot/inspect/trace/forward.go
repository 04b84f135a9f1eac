package trace

import (
	"cmp"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// normalized returns the path of a request as a connection manager normalizes it first, or why it rejects the request.
func normalized(h *hcmv3.HttpConnectionManager, path string) (normal, refusal string) {
	path, _, _ = strings.Cut(path, "#") // as the bootstrap's runtime flags say
	path, query, asks := strings.Cut(path, "?")
	upper := strings.ToUpper(path)
	if strings.Contains(upper, "%2F") || strings.Contains(upper, "%5C") {
		switch h.GetPathWithEscapedSlashesAction() {
		case hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD:
			path = escapedSlash.ReplaceAllStringFunc(path, func(s string) string {
				if strings.EqualFold(s, "%2f") {
					return "/"
				}
				return `\`
			})
		case hcmv3.HttpConnectionManager_REJECT_REQUEST:
			return path, "the path has an escaped slash"
		}
	}
	if h.GetNormalizePath().GetValue() {
		if strings.Contains(path, "%00") {
			return path, "the path has a zero byte"
		}
		path = canonical(path)
	}
	if h.GetMergeSlashes() {
		path = slashes.ReplaceAllString(path, "/")
	}
	if asks {
		path += "?" + query
	}
	return path, ""
}

var (
	escapedSlash = regexp.MustCompile(`(?i)%2f|%5c`)
	slashes      = regexp.MustCompile(`//+`)
	escaped      = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
)

// canonical returns a path without unnecessary escapes and without dot segments, and with slashes for backslashes.
func canonical(path string) string {
	path = escaped.ReplaceAllStringFunc(path, func(s string) string {
		c := unhex(s[1])<<4 | unhex(s[2])
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			return string(rune(c))
		}
		return s
	})
	path = strings.ReplaceAll(path, `\`, "/")
	segments := strings.Split(path, "/")
	out := make([]string, 0, len(segments))
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case i == 0:
			out = append(out, s)
		case s == "." || s == "..":
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return strings.Join(out, "/")
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// change is a change of the headers of requests.
type change struct {
	add    []*corev3.HeaderValueOption
	remove []string
}

// names returns the headers that the change may change.
func (c change) names() []string {
	list := lists.Map(c.add, func(o *corev3.HeaderValueOption) string { return strings.ToLower(o.GetHeader().GetKey()) })
	return append(list, lists.Map(c.remove, strings.ToLower)...)
}

// change changes the headers of a request.
func (r *Request) change(c change) {
	for _, name := range c.remove {
		r.removeHeader(strings.ToLower(name))
	}
	for _, o := range c.add {
		r.addHeader(o)
	}
}

// forwarded returns the request as the route forwards it. Each cluster that the route may choose may change it in a way
// of its own.
func (x *stream) forwarded() Request {
	r, action := x.request, x.route.GetRoute()
	switch chosen := x.clusters(); {
	case len(chosen) == 1:
		r.change(chosen[0].headers)
		r.Authority = cmp.Or(chosen[0].host, r.Authority)
	default:
		for _, c := range chosen {
			for _, name := range c.headers.names() {
				r.blur(name, "the value of header "+name+", which depends on the cluster that is chosen for the request")
			}
			if c.host != "" && c.host != chosen[0].host {
				x.depends("the host of the request becomes %s if cluster %s is chosen for it", c.host, c.name)
			}
		}
	}
	r.change(change{x.route.GetRequestHeadersToAdd(), x.route.GetRequestHeadersToRemove()})
	r.change(change{x.host.GetRequestHeadersToAdd(), x.host.GetRequestHeadersToRemove()})
	r.change(change{x.routes.GetRequestHeadersToAdd(), x.routes.GetRequestHeadersToRemove()})
	r.Authority = cmp.Or(action.GetHostRewriteLiteral(), r.Authority)
	path, query, asks := strings.Cut(r.Path, "?")
	switch to, m := action.GetPrefixRewrite(), x.route.GetMatch(); {
	case to != "" && (m.GetPath() != "" || m.GetSafeRegex() != nil): // the whole path, for a regular expression too
		path = to
	case to != "" && m.GetPathSeparatedPrefix() != "":
		path = to + path[min(len(path), len(m.GetPathSeparatedPrefix())):]
	case to != "":
		path = to + path[min(len(path), len(m.GetPrefix())):]
	case action.GetRegexRewrite() != nil:
		//nolint:forbidigo // it is in a proxy's configuration
		if e, err := regexp.Compile(action.GetRegexRewrite().GetPattern().GetRegex()); err == nil {
			to := strings.ReplaceAll(action.GetRegexRewrite().GetSubstitution(), "$", "$$")
			path = e.ReplaceAllString(path, group.ReplaceAllString(to, "$${$1}"))
		}
	}
	if asks {
		path += "?" + query
	}
	if path != r.Path { // see Envoy's documentation of the HTTP filter router
		r.setHeader("x-envoy-original-path", r.Path)
		r.Path = path
	}
	if x.host.GetIncludeRequestAttemptCount() {
		r.blur("x-envoy-attempt-count", "the value of header x-envoy-attempt-count, which counts retries")
	}
	return r
}

// group is a reference to a group of a regular expression, in RE2's syntax.
var group = regexp.MustCompile(`\\(\d)`)
