package names

import (
	"strings"
	"testing"
)

func TestSecretNamespace(t *testing.T) {
	for resource, want := range map[string]string{ // in namespace a; empty: it is none
		"kubernetes://cert":            "a",
		"kubernetes://cert-cacert":     "a",
		"kubernetes://b/cert":          "b",
		"kubernetes://a/cert":          "a",
		"kubernetes://b/cert#ca":       "b",
		"kubernetes://b/cert#ca#ca":    "",
		"kubernetes://b/cert#":         "",
		"kubernetes-gateway://b/c.d":   "b",
		"kubernetes-gateway://cert":    "",
		"kubernetes://":                "",
		"kubernetes:///cert":           "",
		"kubernetes://b/":              "",
		"kubernetes://b/c/d":           "",
		"kubernetes://../cert":         "",
		"kubernetes://b/../cert":       "",
		"kubernetes://b/..":            "",
		"kubernetes://b/c..d":          "",
		"kubernetes://a/../b":          "",
		"kubernetes://B/cert":          "",
		"kubernetes://b%2fcert":        "",
		"kubernetes://b\\cert":         "",
		"kubernetes://b cert":          "",
		"kubernetes://b/cert?x":        "",
		"kubernetes://bé/cert":         "",
		"Kubernetes://cert":            "",
		" kubernetes://cert":           "",
		"kubernetes:/cert":             "",
		"other://cert":                 "",
		"default":                      "",
		"ROOTCA":                       "",
		"*":                            "",
		"":                             "",
		"file-cert:/etc/key~/etc/cert": "",
	} {
		got, ok := SecretNamespace(resource, "a")
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t, want %q", resource, got, ok, want)
		}
	}
	if _, ok := SecretNamespace("kubernetes://"+strings.Repeat("b", 254), "a"); ok {
		t.Error("a name that is too long is one")
	}
	if _, ok := SecretNamespace("kubernetes://cert", ""); ok {
		t.Error("a proxy without a namespace has secrets")
	}
}

// TestNamedCACredential: a resource for the CA certificates of a Secret that is named for them is made of that Secret
// alone. A resource for the CA certificates of a Secret with a certificate may be made of another one too.
func TestNamedCACredential(t *testing.T) {
	for _, c := range []struct{ name, resource, objects, named, namedObjects string }{
		{"good", "kubernetes://good-cacert", "good-cacert good", "kubernetes://good#ca", "good"},
		{"kubernetes-gateway://a/good", "kubernetes-gateway://a/good-cacert", "good-cacert good", "kubernetes-gateway://a/good#ca", "good"},
		{"good-cacert", "kubernetes://good-cacert", "good-cacert good", "kubernetes://good-cacert", "good-cacert good"},
		{"configmap://a/good", "configmap://a/good-cacert", "good", "configmap://a/good-cacert", "good"},
		{"builtin://", "ROOTCA", "", "ROOTCA", ""},
		{NoCredential, NoCredential, "", NoCredential, ""},
	} {
		objects := func(resource string) string {
			s, ok := ParseSecret(resource, "own")
			if !ok {
				return ""
			}
			if !s.CA {
				t.Errorf("%s is for no CA certificates", resource)
			}
			return strings.Join(s.Objects(), " ")
		}
		resource, served := CACredential(c.name)
		named, servedNamed := NamedCACredential(c.name)
		if resource != c.resource || objects(resource) != c.objects || named != c.named || objects(named) != c.namedObjects ||
			served != servedNamed {
			t.Errorf("%s: %s of %q and %s of %q", c.name, resource, objects(resource), named, objects(named))
		}
	}
}

func FuzzSecretNamespace(f *testing.F) {
	for _, s := range []string{"kubernetes://cert", "kubernetes://b/cert",
		"kubernetes-gateway://b/cert", "kubernetes://b/../cert", "default"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, resource string) {
		namespace, ok := SecretNamespace(resource, "a")
		if !ok {
			return
		}
		// what is allowed names exactly one object: the namespace, or none, and a name
		scheme, rest, _ := strings.Cut(resource, "://")
		parts := strings.Split(rest, "/")
		if len(parts) == 1 && (scheme != "kubernetes" || namespace != "a") || len(parts) == 2 && namespace != parts[0] || len(parts) > 2 {
			t.Errorf("%q is in %q", resource, namespace)
		}
	})
}
