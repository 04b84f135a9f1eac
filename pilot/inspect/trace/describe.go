package trace

import (
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// actions lists what a route does in addition to forwarding.
func actions(r *routev3.Route) []string {
	var list []string
	a := r.GetRoute()
	if t := a.GetTimeout(); t != nil {
		if t.AsDuration() == 0 {
			list = append(list, "no timeout")
		} else {
			list = append(list, "timeout "+t.AsDuration().String())
		}
	}
	if p := a.GetRetryPolicy(); p != nil {
		text := fmt.Sprintf("%d retries on %s", p.GetNumRetries().GetValue(), p.GetRetryOn())
		if p.GetNumRetries() == nil {
			text = "1 retry on " + p.GetRetryOn()
		}
		if t := p.GetPerTryTimeout(); t != nil {
			text += ", " + t.AsDuration().String() + " for each try"
		}
		list = append(list, text)
	}
	if a.GetPrefixRewrite() != "" {
		list = append(list, "the prefix of the path becomes "+a.GetPrefixRewrite())
	}
	if a.GetRegexRewrite() != nil {
		list = append(list, "the path is rewritten by ~"+a.GetRegexRewrite().GetPattern().GetRegex()+" to "+a.GetRegexRewrite().GetSubstitution())
	}
	if a.GetHostRewriteLiteral() != "" {
		list = append(list, "the host becomes "+a.GetHostRewriteLiteral())
	}
	for _, m := range a.GetRequestMirrorPolicies() {
		text := "mirrored to " + m.GetCluster()
		if part := m.GetRuntimeFraction().GetDefaultValue(); part != nil {
			text = percent(part) + " are " + text
		}
		list = append(list, text)
	}
	if f := faultOf(r); f != nil {
		if abort := f.GetAbort(); abort != nil {
			status, _ := statusOf(abort)
			list = append(list, fmt.Sprintf("fault: %s are answered with %s", percent(abort.GetPercentage()), status))
		}
		if delay := f.GetDelay(); delay != nil {
			list = append(list, fmt.Sprintf("fault: %s are delayed by %s", percent(delay.GetPercentage()), delay.GetFixedDelay().AsDuration()))
		}
	}
	if d := r.GetRedirect(); d != nil {
		list = append(list, redirection(d))
	}
	list = append(list, headerChanges("request", r.GetRequestHeadersToAdd(), r.GetRequestHeadersToRemove())...)
	return append(list, headerChanges("response", r.GetResponseHeadersToAdd(), r.GetResponseHeadersToRemove())...)
}

// headerChanges describes changes of the headers of requests or responses.
func headerChanges(of string, add []*corev3.HeaderValueOption, remove []string) (list []string) {
	for _, o := range add {
		verb := "adds"
		if o.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			verb = "sets"
		}
		list = append(list, fmt.Sprintf("it %s %s header %s: %s", verb, of, o.GetHeader().GetKey(), o.GetHeader().GetValue()))
	}
	for _, name := range remove {
		list = append(list, "it removes "+of+" header "+name)
	}
	return list
}

// redirection describes the parts of the URL that a redirect changes.
func redirection(d *routev3.RedirectAction) string {
	var parts []string
	part := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	scheme := d.GetSchemeRedirect()
	if d.GetHttpsRedirect() {
		scheme = "https"
	}
	part("scheme", scheme)
	part("host", d.GetHostRedirect())
	if d.GetPortRedirect() != 0 {
		part("port", strconv.Itoa(int(d.GetPortRedirect())))
	}
	part("path", d.GetPathRedirect())
	part("prefix of the path", d.GetPrefixRewrite())
	if x := d.GetRegexRewrite(); x != nil {
		part("path", "~"+x.GetPattern().GetRegex()+" as "+x.GetSubstitution())
	}
	if len(parts) == 0 {
		return "redirect to the URL that is called"
	}
	return "redirect to " + strings.Join(parts, ", ")
}
