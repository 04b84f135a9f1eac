package names

import (
	"slices"
	"strings"
)

// EgressHost is a host of a Sidecar's egress listener: namespace/host, with a ~ in front if it is excluded.
type EgressHost struct {
	Namespace string // a namespace, or "*" for any
	Host      string // a host in lower case, or "*" for any
	Excluded  bool   // written with a tilde
}

// ParseEgressHost reads a host of an egress listener in a Sidecar of namespace own. A host without a namespace belongs
// to any, and a tilde alone stands for any namespace.
func ParseEgressHost(text, own string) EgressHost {
	ns, host, found := strings.Cut(text, "/")
	if !found {
		return EgressHost{Namespace: "*", Host: strings.ToLower(text)}
	}
	e := EgressHost{Host: strings.ToLower(host)}
	e.Namespace, e.Excluded = strings.CutPrefix(ns, "~")
	switch {
	case e.Namespace == ".":
		e.Namespace = own
	case e.Namespace == "" && e.Excluded:
		e.Namespace = "*"
	}
	return e
}

// Excludes reports whether it excludes a host of a namespace.
func (e EgressHost) Excludes(namespace, host string) bool {
	return e.Excluded && (e.Namespace == "*" || e.Namespace == namespace) && Covers(e.Host, host)
}

// EgressHosts are the hosts of an egress listener.
type EgressHosts struct {
	included, excluded map[string][]string // patterns of hosts by namespace, "*" for any
}

// ParseEgressHosts reads the hosts of an egress listener in a Sidecar of namespace own.
func ParseEgressHosts(hosts []string, own string) *EgressHosts {
	e := &EgressHosts{included: map[string][]string{}, excluded: map[string][]string{}}
	for _, h := range hosts {
		p := ParseEgressHost(h, own)
		to := e.included
		if p.Excluded {
			to = e.excluded
		}
		to[p.Namespace] = append(to[p.Namespace], p.Host)
	}
	return e
}

// Covers reports whether a host of a namespace is imported.
func (e *EgressHosts) Covers(namespace, host string) bool {
	return matches(e.included, namespace, func(p string) bool { return Covers(p, host) }) && !e.Excludes(namespace, host)
}

// Overlaps reports whether a host of a namespace, which may be a wildcard, stands for some imported host.
func (e *EgressHosts) Overlaps(namespace, host string) bool {
	return matches(e.included, namespace, func(p string) bool { return Overlap(p, host) }) && !e.Excludes(namespace, host)
}

// Excludes reports whether a host of a namespace is excluded, whatever other hosts the listener has.
func (e *EgressHosts) Excludes(namespace, host string) bool {
	return matches(e.excluded, namespace, func(p string) bool { return Covers(p, host) })
}

func matches(patterns map[string][]string, namespace string, match func(string) bool) bool {
	return slices.ContainsFunc(patterns[namespace], match) || slices.ContainsFunc(patterns["*"], match)
}
