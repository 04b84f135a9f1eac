package names

import "strings"

// caSuffix ends the names of resources of SDS that hold the CA certificates of a Secret, not its own certificate.
const caSuffix = "-cacert"

// namedCASuffix ends the names of resources of SDS that hold the CA certificates of exactly the Secret that is named.
// No object has such a name.
const namedCASuffix = "#ca"

// Schemes of the names of resources of SDS.
const (
	schemeSecret    = "kubernetes://"
	schemeGateway   = "kubernetes-gateway://"
	schemeConfigMap = "configmap://"
	schemeBuiltin   = "builtin://"
)

// NoCredential is a credential that no Secret and no ConfigMap has: connections that need it are refused.
const NoCredential = "invalid://"

// Secret is what the name of a resource of SDS says that the control plane serves.
type Secret struct {
	Namespace, Name string
	ConfigMap       bool // it is made of a ConfigMap, not of a Secret
	CA              bool // the CA certificates, not a certificate with its key
	exact           bool // only the object of that name is meant
}

// ParseSecret takes the name of a resource of SDS apart. kubernetes://<name> is in the proxy's own namespace;
// kubernetes://<namespace>/<name>, kubernetes-gateway://<namespace>/<name> and configmap://<namespace>/<name> are in
// the one that they name. Each may end in -cacert or #ca. It reports false if the name is none of these.
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

// Objects returns the names of the Secrets, or of the ConfigMap, that the resource may be made of. The first that
// exists is in force. CA certificates may be in a Secret of their own.
func (s Secret) Objects() []string {
	if s.CA && !s.ConfigMap && !s.exact {
		return []string{s.Name + caSuffix, s.Name}
	}
	return []string{s.Name}
}

// SecretNamespace returns the namespace of what a resource of SDS is made of. It reports false if ParseSecret does.
func SecretNamespace(resource, own string) (string, bool) {
	s, ok := ParseSecret(resource, own)
	return s.Namespace, ok
}

// Credential returns the name of the resource that has the certificate which a Gateway or a DestinationRule names, and
// reports whether the control plane serves it. It does not serve the proxy's own, which the agent beside it has.
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

// NamedCACredential is CACredential for a name that says where the CA certificates are, not where the certificate is.
// A Secret whose name has -cacert at its end besides does not take the place of the Secret that is named.
func NamedCACredential(credentialName string) (resource string, served bool) {
	resource, served = CACredential(credentialName)
	if s, ok := ParseSecret(resource, "own"); ok && served && !s.ConfigMap && !strings.HasSuffix(credentialName, caSuffix) {
		resource = strings.TrimSuffix(resource, caSuffix) + namedCASuffix
	}
	return resource, served
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
