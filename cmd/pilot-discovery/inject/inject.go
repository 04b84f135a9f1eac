package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/manifest"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// flags say where the templates come from.
type flags struct {
	files                                          []string
	output, dir, config, values, mesh              string
	kubeconfig, rootNamespace, revision, namespace string
	native                                         string
	env                                            *env.Env
}

// Command returns the command pilot-discovery inject.
func Command(e *env.Env) *cobra.Command {
	f := &flags{env: e}
	c := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Add proxies to the Pods of a manifest, as injection does",
		Long: `Print a manifest with the proxies that the webhook would add to its Pods. Objects without Pods stay
unchanged.

The templates are in the files config and values of --injectDir, or in the ConfigMap
istio-sidecar-injector of the cluster of --kubeconfig.`,
		Example: `  pilot-discovery inject -f app.yaml | kubectl apply -f -
  kubectl get deployment app -o yaml | pilot-discovery inject --kubeconfig ~/.kube/config -f -`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file, or - for the standard input; may be repeated")
	flags.StringVarP(&f.output, "output", "o", "", "file to write; empty is the standard output")
	flags.StringVar(&f.dir, "injectDir", "./var/lib/istio/inject", "directory with the files config and values")
	flags.StringVar(&f.config, "injectConfigFile", "", "file with the templates, instead of the one in --injectDir")
	flags.StringVar(&f.values, "valuesFile", "", "file with the values of the chart, instead of the one in --injectDir")
	flags.StringVar(&f.mesh, "meshConfigFile", "", "file with the mesh configuration; empty is the ConfigMap istio of the cluster, "+
		"or the defaults")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster whose ConfigMaps are used if no files are given")
	flags.StringVarP(&f.rootNamespace, "istioNamespace", "i", e.Text("POD_NAMESPACE", "istio-system"),
		"root namespace, which has the ConfigMaps")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of objects that name none")
	flags.StringVarP(&f.revision, "revision", "r", e.Text("REVISION", ""), "revision of the control plane")
	flags.StringVar(&f.native, "nativeSidecars", e.Text("ENABLE_NATIVE_SIDECARS", "auto"),
		"whether proxies are native sidecars (init containers that keep running): true, false, or auto, which means true")
	_ = c.MarkFlagRequired("filename")
	return c
}

func (f *flags) run(c *cobra.Command, _ []string) error {
	i, err := f.injector(c)
	if err != nil {
		return err
	}
	var all []byte
	for _, name := range f.files {
		text, err := readManifest(c, name)
		if err != nil {
			return err
		}
		out, notes, err := manifest.Inject(c.Context(), manifest.Options{Injector: i, File: name, Namespace: f.namespace}, text)
		for _, n := range notes {
			fmt.Fprintln(c.ErrOrStderr(), "note:", terminal.Plain(n))
		}
		if err != nil {
			return err
		}
		if n := len(all); n > 0 {
			if all[n-1] != '\n' {
				all = append(all, '\n')
			}
			all = append(all, "---\n"...)
		}
		all = append(all, out...)
	}
	if f.output != "" {
		return os.WriteFile(f.output, all, 0o644) //nolint:gosec // a manifest contains no secret
	}
	_, err = c.OutOrStdout().Write(all)
	return err
}

func readManifest(c *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	return os.ReadFile(name)
}

// injector returns the Injector for the templates and prints findings about them.
func (f *flags) injector(c *cobra.Command) (*injector.Injector, error) {
	if err := cli.CheckNativeSidecars(f.native); err != nil {
		return nil, err
	}
	texts, meshText, object, err := f.texts(c.Context())
	if err != nil {
		return nil, err
	}
	m, findings := mesh.Parse(cmp.Or(f.mesh, "the mesh configuration"), []byte(meshText))
	config, more := injector.Parse(object, texts, injector.Functions{Env: f.env.Getenv})
	for _, d := range append(findings, more...) {
		if d.Severity == diag.Error || m != nil && config != nil {
			fmt.Fprintln(c.ErrOrStderr(), terminal.Plain(d.String()))
		}
	}
	if m == nil || config == nil {
		return nil, cli.Exit(1)
	}
	if m.Compliance, err = compliance.Parse(f.env.Text(compliance.Variable, "")); err != nil {
		return nil, err
	}
	i := injector.New(injector.Options{
		Revision: f.revision, World: injector.MeshOnly{Config: m},
		NativeSidecars: func() bool { return f.native != "false" }, Logger: slog.New(slog.DiscardHandler),
		Time: time.Minute, // No API server waits.
	})
	i.Set(config)
	return i, nil
}

// texts returns the templates and the mesh configuration, from files or from the cluster, and the name of the object
// that has the templates.
func (f *flags) texts(ctx context.Context) (t injector.Texts, meshText, object string, err error) {
	config, values := cmp.Or(f.config, filepath.Join(f.dir, injector.ConfigKey)), cmp.Or(f.values, filepath.Join(f.dir, injector.ValuesKey))
	if _, err := os.Stat(config); errors.Is(err, fs.ErrNotExist) && f.config == "" {
		if f.kubeconfig == "" {
			return t, "", "", fmt.Errorf("there are no templates: %s does not exist; name files by --injectDir, or a cluster by "+
				"--kubeconfig", config)
		}
		return f.fromCluster(ctx)
	}
	for path, into := range map[string]*string{config: &t.Config, values: &t.Values, f.mesh: &meshText} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return t, "", "", fmt.Errorf("read %s: %w", path, err)
		}
		*into = string(text)
	}
	return t, meshText, config, nil
}

func (f *flags) fromCluster(ctx context.Context) (t injector.Texts, meshText, object string, err error) {
	config, err := crd.Config(crd.ClientOptions{Kubeconfig: f.kubeconfig, Version: version.Tag()})
	if err != nil {
		return t, "", "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return t, "", "", err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(f.rootNamespace)
	suffix := ""
	if f.revision != "" && f.revision != "default" {
		suffix = "-" + f.revision
	}
	get := func(name, key string) (string, error) {
		cm, err := maps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read the ConfigMap %s/%s: %w", f.rootNamespace, name, err)
		}
		text, _, err := unstructured.NestedString(cm.Object, "data", key)
		return text, err
	}
	name := injector.MapName(f.revision)
	if t.Config, err = get(name, injector.ConfigKey); err == nil {
		t.Values, err = get(name, injector.ValuesKey)
	}
	if err != nil {
		return t, "", "", err
	}
	if f.mesh != "" {
		text, err := os.ReadFile(f.mesh)
		return t, string(text), "ConfigMap " + name, err
	}
	meshText, err = get("istio"+suffix, "mesh")
	return t, meshText, "ConfigMap " + name, err
}
