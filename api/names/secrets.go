package names

import "strings"

// SecretNamespace returns the namespace of the Secret that a resource of SDS is made of, by the resource's name:
// kubernetes://<name> is in the proxy's own namespace, kubernetes://<namespace>/<name> and
// kubernetes-gateway://<namespace>/<name> are in the one that they name. It reports false if the name is none of these.
func SecretNamespace(resource, own string) (string, bool) {
	scheme, rest, ok := strings.Cut(resource, "://")
	namespace, name, named := strings.Cut(rest, "/")
	switch {
	case !ok:
		return "", false
	case scheme == "kubernetes" && !named:
		namespace, name = own, rest
	case scheme != "kubernetes" && scheme != "kubernetes-gateway":
		return "", false
	}
	return namespace, isObjectName(namespace) && isObjectName(name)
}

// isObjectName reports whether Kubernetes takes a text for the name of an object: no other can be a part of a path.
func isObjectName(s string) bool {
	edge := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	if s == "" || len(s) > 253 || !edge(s[0]) || !edge(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !edge(s[i]) && s[i] != '-' && s[i] != '.' {
			return false
		}
	}
	return !strings.Contains(s, "..")
}
