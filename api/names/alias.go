package names

import "strings"

// MaxAliasDepth limits the length of a chain of aliases, which may be a cycle.
const MaxAliasDepth = 8

// ExternalName returns the host that a Service of type ExternalName is an alias of.
func ExternalName(written string) string { return strings.TrimSuffix(strings.ToLower(written), ".") }

// FollowAliases returns the host at the end of the chain of aliases that begins with a host, or "" if the chain is too
// long. target returns what a host is an alias of, or "" if it is none.
func FollowAliases(host string, target func(host string) string) string {
	for range MaxAliasDepth {
		next := target(host)
		if next == "" {
			return host
		}
		host = next
	}
	return ""
}
