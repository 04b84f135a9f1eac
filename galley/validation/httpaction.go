package validation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func redirect(r fieldRef) {
	if r.absent() {
		return
	}
	if r.at("uri").empty() && r.at("prefixRewrite").empty() && r.at("authority").empty() &&
		r.at("scheme").empty() && r.at("port").absent() && r.at("derivePort").absent() {
		r.bad("add uri, authority, scheme or port", "the redirect leads back to where it came from")
	}
	if code := r.at("redirectCode"); !code.absent() && !slices.Contains([]string{"0", "301", "302", "303", "307", "308"}, code.text()) {
		if code.number() >= 300 && code.number() <= 399 {
			code = code.tolerated()
		}
		code.bad("use 301, 302, 303, 307 or 308", "%s is not the code of a redirect", code.text())
	}
	for _, f := range []string{"uri", "authority", "prefixRewrite"} {
		r.at(f).tolerated().singleLine()
	}
	r.at("port").optionalPort()
	if s := r.at("scheme"); !s.empty() && !s.is("http") && !s.is("https") {
		s.bad("use http or https", "unknown scheme %q", s.text())
	}
	r.exclusive("uri", "prefixRewrite")
}

func retries(r fieldRef) {
	if r.absent() {
		return
	}
	r.at("attempts").atLeast(0)
	r.at("perTryTimeout").timeout()
	if t := r.at("perTryTimeout"); !t.absent() && t.duration() == 0 {
		t.refuse("remove it, or write a positive duration", "the duration is zero")
	}
	r.at("backoff").interval()
	if r.at("attempts").number() == 0 &&
		!(r.at("perTryTimeout").absent() && r.at("retryOn").empty() && r.at("retryRemoteLocalities").absent()) {
		r.refuse("set attempts to 1 or more, or remove the rest", "there are no retries, as attempts is 0, but they are configured")
	}
	if on := r.at("retryOn"); !on.empty() {
		for cond := range strings.SplitSeq(on.text(), ",") {
			if code, err := strconv.Atoi(cond); err == nil && code >= 100 && code <= 599 {
				continue
			}
			if !slices.Contains(names.RetryConditions(), cond) {
				on.bad(diag.UnknownName(cond, names.RetryConditions()), "unknown retry condition %q", cond)
			}
		}
	}
}

// status checks the status of a response. Istio's webhook accepts 600, which Envoy refuses.
func (p fieldRef) status() {
	if p.istioAccepts = p.number() == 600; !p.absent() {
		p.between(200, 599)
	}
}

func percent(p fieldRef) {
	if !p.absent() {
		p.at("value").between(0, 100)
	}
}

func fault(f fieldRef) {
	if f.absent() {
		return
	}
	if f.empty() {
		f.bad("add delay or abort", "the fault does nothing")
	}
	if d := f.at("delay"); !d.absent() {
		percent(d.at("percentage"))
		d.at("percent").tolerated().between(0, 100)
		if d.at("fixedDelay").absent() && d.at("exponentialDelay").absent() {
			d.at("fixedDelay").warn("add fixedDelay", "the delay has no length, and so no effect")
		}
		d.at("fixedDelay").interval()
		if e := d.at("exponentialDelay"); !e.absent() {
			e.bad("use fixedDelay", "exponentialDelay is not supported")
		}
	}
	if a := f.at("abort"); !a.absent() {
		percent(a.at("percentage"))
		a.at("httpStatus").status()
		if s := a.at("grpcStatus"); !s.absent() && !slices.Contains(grpcStatuses(), s.text()) {
			s.bad(diag.UnknownName(s.text(), grpcStatuses()), "unknown gRPC status %q", s.text())
		}
		if e := a.at("http2Error"); !e.absent() {
			e.bad("use httpStatus or grpcStatus", "http2Error is not supported")
		}
		if a.at("httpStatus").absent() && a.at("grpcStatus").absent() && a.at("http2Error").absent() {
			a.at("httpStatus").warn("add httpStatus or grpcStatus", "the abort has no status, and so no effect")
		}
	}
}

func grpcStatuses() []string {
	return []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED",
		"NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
		"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
}

func cors(c fieldRef) {
	if c.absent() {
		return
	}
	for _, o := range c.at("allowOrigins").items() {
		if o.at("exact").empty() && o.at("prefix").empty() && o.at("regex").empty() {
			o.bad("add exact, prefix or regex", "the origin has no value")
			continue
		}
		stringMatch(o)
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"}
	for _, m := range c.at("allowMethods").items() {
		if !slices.Contains(methods, m.text()) {
			m.bad(diag.UnknownName(m.text(), methods), "unknown method %q", m.text())
		}
	}
	for _, f := range []string{"allowHeaders", "exposeHeaders"} {
		for _, h := range c.at(f).items() {
			h.headerName(h.text())
		}
	}
	c.at("maxAge").timeout()
	if age := c.at("maxAge"); !age.absent() && age.duration() == 0 {
		age.refuse("remove it, or write whole seconds", "the age is zero")
	}
	if age := c.at("maxAge"); age.duration()%time.Second != 0 {
		age.bad("write whole seconds", "the age is no number of whole seconds")
	}
}

func headers(h fieldRef) {
	for _, side := range []string{"request", "response"} {
		for _, op := range []string{"set", "add"} {
			h.at(side).at(op).each(func(name string, value fieldRef) {
				value.changedHeader(name)
				if side == "response" && strings.EqualFold(name, "host") {
					value.bad("remove it", "a response has no header %s", name)
				}
				if isAuthority(name) {
					value.commands()
					value.singleLine() // it is used unchanged
				} else {
					value.headerValue()
				}
			})
		}
		for _, name := range h.at(side).at("remove").items() {
			name.changedHeader(name.text())
			if strings.EqualFold(name.text(), "host") {
				name.bad("set it instead", "header %s cannot be removed", name.text())
			}
		}
	}
}

// isAuthority reports whether name is one of the two names of the authority header, which proxies rewrite by a setting
// of its own.
func isAuthority(name string) bool {
	return strings.EqualFold(name, "host") || strings.EqualFold(name, ":authority")
}

// changedHeader checks the name of a header to set or remove. Headers that begin with a colon, other than the
// authority, define the request itself.
func (p fieldRef) changedHeader(name string) {
	if strings.HasPrefix(name, ":") && !isAuthority(name) {
		p.bad("use rewrite, redirect or directResponse", "header %s cannot be set or removed", name)
		return
	}
	if name != "" {
		p.istioAccepts = true
	}
	p.headerName(name)
}

func mirror(r fieldRef) {
	if m := r.at("mirror"); !m.absent() {
		destination(m)
	}
	for _, m := range r.at("mirrors").items() {
		if m.required("destination") {
			destination(m.at("destination"))
		}
		percent(m.at("percentage"))
	}
	percent(r.at("mirrorPercentage"))
	r.at("mirrorPercent").between(0, 100)
}
