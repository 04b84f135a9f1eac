package restore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// commands returns the commands of a section of the document, split into words.
func commands(t *testing.T, section string) (list [][]string) {
	t.Helper()
	text, err := os.ReadFile(os.Getenv(documentVar))
	must.Succeed(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			list = append(list, strings.Fields(command))
		}
	}
	if !found || len(list) == 0 {
		t.Fatalf("the document has no commands in the section %s", section)
	}
	return list
}

// backup runs the commands of the section Backup, and returns the files that they write. Releases of Helm are left out,
// because the control planes of these tests have none.
func backup(t *testing.T, c *cluster.Cluster) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, words := range commands(t, "Backup") {
		switch {
		case words[0] == "helm":
		case words[0] == "kubectl" && words[1] == "get":
			name, ok := strings.CutPrefix(words[len(words)-1], ">")
			if !ok {
				t.Fatalf("%v writes no file", words)
			}
			files[name] = get(t, c, words[2:len(words)-1])
		default:
			t.Fatalf("unknown command %v", words)
		}
	}
	return files
}

// get does what `kubectl get` does with these arguments.
func get(t *testing.T, c *cluster.Cluster, args []string) []byte {
	t.Helper()
	var o metav1.ListOptions
	var names []string
	namespace, missing := "default", false
	for i := 1; i < len(args); i++ {
		next := func() string { i++; return args[i] }
		switch arg := args[i]; arg {
		case "-n":
			namespace = next()
		case "-A":
			namespace = ""
		case "-l":
			o.LabelSelector = next()
		case "--field-selector":
			o.FieldSelector = next()
		case "--ignore-not-found":
			missing = true
		case "-o":
			next()
		default:
			if strings.HasPrefix(arg, "-") {
				t.Fatalf("unknown flag %s", arg)
			}
			names = append(names, arg)
		}
	}
	var out bytes.Buffer
	add := func(o *unstructured.Unstructured) {
		text, err := json.Marshal(o.Object)
		must.Succeed(t, err)
		fmt.Fprintf(&out, "---\n%s\n", text)
	}
	for _, r := range resources(t, c, strings.Split(args[0], ",")) {
		objects := c.Dynamic().Resource(r.GroupVersionResource)
		at := objects.Namespace("")
		if r.namespaced {
			at = objects.Namespace(namespace)
		}
		for _, name := range names {
			o, err := at.Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) && missing {
				continue
			}
			must.Succeed(t, err)
			add(o)
		}
		if len(names) > 0 {
			continue
		}
		list, err := at.List(t.Context(), o)
		must.Succeed(t, err)
		for i := range list.Items {
			add(&list.Items[i])
		}
	}
	return out.Bytes()
}

type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// resources returns the resources with these names or categories.
func resources(t *testing.T, c *cluster.Cluster, names []string) (list []resource) {
	t.Helper()
	all, err := c.Client().Discovery().ServerPreferredResources()
	must.Succeed(t, err)
	for _, l := range all {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		must.Succeed(t, err)
		for _, r := range l.APIResources {
			named := gv.Group == "" && (slices.Contains(names, r.Name) || slices.Contains(names, r.SingularName))
			if named || slices.ContainsFunc(r.Categories, func(c string) bool { return slices.Contains(names, c) }) {
				list = append(list, resource{gv.WithResource(r.Name), r.Namespaced})
			}
		}
	}
	return list
}

// restore runs the commands of the section Restore, up to the start of the control plane.
func restore(t *testing.T, c *cluster.Cluster, files map[string][]byte) {
	t.Helper()
	restored := 0
	for _, words := range commands(t, "Restore") {
		switch command := strings.Join(words, " "); {
		case strings.HasPrefix(command, "helm install base "):
			must.Succeed(t, c.InstallCRDs(t.Context(), os.Getenv(crdsVar)))
		case strings.HasPrefix(command, "helm install istiod "):
			if restored != len(files) {
				t.Fatalf("%d of %d files are restored before the control plane starts", restored, len(files))
			}
			return
		case strings.HasPrefix(command, "kubectl apply -f "):
			text, ok := files[words[3]]
			if !ok {
				t.Fatalf("no command of the backup writes %s", words[3])
			}
			must.Succeed(t, c.Apply(t.Context(), text))
			restored++
		default:
			t.Fatalf("unknown command %v", words)
		}
	}
	t.Fatal("no command starts the control plane")
}
