package trace

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
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

// forwarded returns a request as a route forwards it.
func forwarded(r Request, c *routev3.RouteConfiguration, h *routev3.VirtualHost, route *routev3.Route) Request {
	for _, change := range []struct {
		add    []*corev3.HeaderValueOption
		remove []string
	}{
		{route.GetRequestHeadersToAdd(), route.GetRequestHeadersToRemove()}, {h.GetRequestHeadersToAdd(), h.GetRequestHeadersToRemove()},
		{c.GetRequestHeadersToAdd(), c.GetRequestHeadersToRemove()},
	} {
		for _, name := range change.remove {
			r.removeHeader(strings.ToLower(name))
		}
		for _, o := range change.add {
			r.addHeader(o)
		}
	}
	a := route.GetRoute()
	if host := a.GetHostRewriteLiteral(); host != "" {
		r.Authority = host
	}
	path, query, asks := strings.Cut(r.Path, "?")
	switch to, m := a.GetPrefixRewrite(), route.GetMatch(); {
	case to != "" && m.GetPath() != "":
		path = to
	case to != "" && m.GetPathSeparatedPrefix() != "":
		path = to + path[min(len(path), len(m.GetPathSeparatedPrefix())):]
	case to != "":
		path = to + path[min(len(path), len(m.GetPrefix())):]
	case a.GetRegexRewrite() != nil:
		//nolint:forbidigo // it is in a proxy's configuration
		if x, err := regexp.Compile(a.GetRegexRewrite().GetPattern().GetRegex()); err == nil {
			path = x.ReplaceAllString(path, group.ReplaceAllString(strings.ReplaceAll(a.GetRegexRewrite().GetSubstitution(), "$", "$$"), "$${$1}"))
		}
	}
	if asks {
		path += "?" + query
	}
	r.Path = path
	return r
}

// group is a reference to a group of a regular expression, in RE2's syntax.
var group = regexp.MustCompile(`\\(\d)`)
