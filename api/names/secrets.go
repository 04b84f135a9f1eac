package names

import "strings"

// caSuffix is the suffix of SDS resources with the CA certificates of a Secret instead of its own certificate.
const caSuffix = "-cacert"

// namedCASuffix is the suffix of SDS resources with the CA certificates of exactly the named Secret. No object's name
// can end with it.
const namedCASuffix = "#ca"

// Schemes of the names of resources of SDS.
const (
	schemeSecret    = "kubernetes://"
	schemeGateway   = "kubernetes-gateway://"
	schemeConfigMap = "configmap://"
	schemeBuiltin   = "builtin://"
)

// NoCredential is a credential that does not exist: connections that need it are refused.
const NoCredential = "invalid://"

// Secret is the parsed name of an SDS resource that the control plane serves.
type Secret struct {
	Namespace, Name string
	ConfigMap       bool // made from a ConfigMap instead of a Secret
	CA              bool // the CA certificates instead of a certificate with its key
	exact           bool // only the object with exactly that name is meant
}

// ParseSecret parses the name of an SDS resource. kubernetes://<name> is in the proxy's own namespace;
// kubernetes://<namespace>/<name>, kubernetes-gateway://<namespace>/<name> and configmap://<namespace>/<name> are in
// the namespace in their name. Each may end with -cacert or #ca. ParseSecret reports false for any other name.
func ParseSecret(resource, own string) (Secret, bool) {
	scheme, rest, ok := strings.Cut(resource, "://")
	namespace, name, named := strings.Cut(rest, "/")
	s := Secret{Namespace: namespace, Name: name}
	switch {
	case !ok:
		return Secret{}, false
	case scheme+"://" == schemeSecret && !named:
		s.Namespace, s.Name = own, rest
	case scheme+"://" == schemeConfigMap:
		s.ConfigMap = true
	case scheme+"://" != schemeSecret && scheme+"://" != schemeGateway:
		return Secret{}, false
	}
	if s.Name, s.exact = strings.CutSuffix(s.Name, namedCASuffix); !s.exact {
		s.Name, s.CA = strings.CutSuffix(s.Name, caSuffix)
	}
	s.CA = s.CA || s.exact || s.ConfigMap
	if !isObjectName(s.Namespace) || !isObjectName(s.Name) {
		return Secret{}, false
	}
	return s, true
}

// Objects returns the names of the Secrets, or of the ConfigMap, that the resource may be made from. The first that
// exists is used. CA certificates may be in a Secret of their own.
func (s Secret) Objects() []string {
	if s.CA && !s.ConfigMap && !s.exact {
		return []string{s.Name + caSuffix, s.Name}
	}
	return []string{s.Name}
}

// SecretNamespace returns the namespace of the object that an SDS resource is made from. It reports false if
// ParseSecret does.
func SecretNamespace(resource, own string) (string, bool) {
	s, ok := ParseSecret(resource, own)
	return s.Namespace, ok
}

// Credential returns the name of the SDS resource with the certificate that a Gateway or a DestinationRule names, and
// reports whether the control plane serves it. It does not serve the proxy's own certificate, which the agent serves.
func Credential(credentialName string) (resource string, served bool) {
	switch {
	case strings.HasPrefix(credentialName, schemeBuiltin):
		return "default", false
	case strings.Contains(credentialName, "://"):
		return credentialName, true
	}
	return schemeSecret + credentialName, true
}

// CACredential is Credential for the CA certificates.
func CACredential(credentialName string) (resource string, served bool) {
	if strings.HasPrefix(credentialName, schemeBuiltin) {
		return "ROOTCA", false
	}
	resource, served = Credential(credentialName)
	if credentialName == NoCredential {
		return resource, served
	}
	if !strings.HasSuffix(resource, caSuffix) {
		resource += caSuffix
	}
	return resource, served
}

// NamedCACredential is CACredential for a name of the object with the CA certificates. A Secret with that name and the
// suffix -cacert does not replace it.
func NamedCACredential(credentialName string) (resource string, served bool) {
	resource, served = CACredential(credentialName)
	if s, ok := ParseSecret(resource, "own"); ok && served && !s.ConfigMap && !strings.HasSuffix(credentialName, caSuffix) {
		resource = strings.TrimSuffix(resource, caSuffix) + namedCASuffix
	}
	return resource, served
}

// isObjectName reports whether Kubernetes accepts a text as the name of an object, so that it is safe in a path.
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
