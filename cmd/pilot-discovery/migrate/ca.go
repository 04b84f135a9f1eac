package migrate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// certificates is the section about certificate authorities.
const certificates = "certificate authority"

// caSecrets are the Secrets in which istiod and this control plane keep a CA, in the order in which they are read.
func caSecrets() []string { return []string{"cacerts", "istio-ca-secret"} }

// addMountedCA adds points about a CA that an istiod reads from another place than the Secret cacerts in /etc/cacerts.
func addMountedCA(v *migration.Verdict, pod map[string]any, e env.Env, where string) {
	const folder = "./etc/cacerts"
	if dir := e.Getenv("ROOT_CA_DIR"); dir != "" && dir != folder && dir != "/etc/cacerts" {
		v.Add(certificates, migration.Point{InTheWay: true, Where: where,
			Text: fmt.Sprintf("ROOT_CA_DIR=%s is the directory of the CA, and this chart mounts the Secret cacerts at /etc/cacerts", dir),
			Fix:  "mount the same files at that directory by the values volumes and volumeMounts, and set env.ROOT_CA_DIR"})
	}
	volumes, _, _ := unstructured.NestedSlice(pod, "volumes")
	for _, x := range volumes {
		m, _ := x.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "name")
		secret, ofSecret, _ := unstructured.NestedString(m, "secret", "secretName")
		if name != "cacerts" || ofSecret && secret == "cacerts" {
			continue
		}
		what := "something else than a Secret"
		if ofSecret {
			what = "the Secret " + secret
		}
		v.Add(certificates, migration.Point{InTheWay: true, Where: where,
			Text: fmt.Sprintf("the CA at /etc/cacerts is %s, and this chart mounts the Secret cacerts there", what),
			Fix:  "copy it to a Secret cacerts, or mount it elsewhere by the values volumes and volumeMounts and set env.ROOT_CA_DIR"})
	}
}

// addAuthority adds points about the CA of the workloads: the Secret with it, or the authority that signs in its place.
func addAuthority(v *migration.Verdict, around []migration.Object, e env.Env, namespace string, looked bool) {
	switch {
	case strings.EqualFold(e.Getenv("ENABLE_CA_SERVER"), "false"):
		v.Add(certificates, migration.Point{Text: "ENABLE_CA_SERVER=false: another authority signs for workloads",
			Fix: "set global.caAddress as now, and keep the Secret istiod-tls and the ConfigMap with its roots: both must exist at a start"})
		return
	case e.Getenv("EXTERNAL_CA") != "" || e.Getenv("ROOT_CA_DIR") != "":
		return
	}
	var names []string
	for _, o := range around {
		if o.GetKind() == "Secret" && o.GetNamespace() == namespace && slices.Contains(caSecrets(), o.GetName()) {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names) // cacerts comes first
	if len(names) > 0 {
		v.Add(certificates, migration.Point{Text: fmt.Sprintf("Secret %s/%s has the CA, which both control planes use", namespace, names[0])})
	} else if looked {
		v.Add(certificates, migration.Point{InTheWay: true,
			Text: fmt.Sprintf("namespace %s has no Secret %s: this control plane would make a root of its own", namespace,
				strings.Join(caSecrets(), " or ")),
			Fix: "copy the CA of istiod into one of them: the proxies of both control planes trust each other only if they have one root"})
	}
}
