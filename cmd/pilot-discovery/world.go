package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// worldFlags are where the mesh is described; the commands that work on a directory share them.
type worldFlags struct {
	configDir, domain, meshConfig, networks, clusterID, namespace string

	http3 bool
}

func (f *worldFlags) register(flags *pflag.FlagSet, e *env) {
	flags.StringVar(&f.configDir, "configDir", "", "directory of YAML that describes the mesh, watched for changes")
	f.registerMesh(flags, e, "namespace", "n")
}

// registerMesh registers the flags; the root namespace is called by name and short.
func (f *worldFlags) registerMesh(flags *pflag.FlagSet, e *env, name, short string) {
	f.http3 = e.asked(http3.Variable)
	flags.StringVar(&f.domain, "domain", "cluster.local", "DNS domain of the cluster")
	flags.StringVar(&f.meshConfig, "meshConfig", "./etc/istio/config/mesh", "file with the mesh configuration; where there is none, the ConfigMap istio of the root namespace")
	flags.StringVar(&f.networks, "networksConfig", "./etc/istio/config/meshNetworks", "file with the mesh networks")
	flags.StringVar(&f.clusterID, "clusterID", e.text("CLUSTER_ID", "Kubernetes"), "id of the cluster that this server runs in")
	flags.StringVarP(&f.namespace, name, short, e.text("POD_NAMESPACE", "istio-system"), "root namespace")
}

func (f *worldFlags) options(o *ingest.Options) {
	o.ConfigDir, o.Domain, o.MeshConfig, o.MeshNetworks, o.ClusterID, o.Namespace = f.configDir, f.domain, f.meshConfig, f.networks, f.clusterID, f.namespace
	o.HTTP3 = f.http3
}

// readOnce reads configuration once, from the directory of the flags or from the texts of the options. What it logs
// besides its findings is not shown.
func readOnce(c *cobra.Command, f worldFlags, o ingest.Options) (*inspect.Inspection, error) {
	checks := meshChecks()
	if c.Flags().Lookup("istioNamespace") == nil {
		checks["namespace"] = checkNamespace // the root namespace
	}
	if err := checks.run(c.Flags()); err != nil {
		return nil, err
	}
	if err := checkMeshFiles(c.Flags()); err != nil {
		return nil, err
	}
	p := newProgress(c.ErrOrStderr(), "reading the configuration")
	defer p.done()
	o.Logger, o.Limits, o.NoWatch = slog.New(slog.DiscardHandler), limits.Default(), true
	f.options(&o)
	return inspect.Read(c.Context(), o, catalog.Features())
}

// notRead are the findings that say what this user may not read of a cluster.
func notRead(i *inspect.Inspection) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(i.Findings), func(d diag.Diagnostic) bool { return d.Code != "IST0141" })
}

// warnNotRead says what this user may not read: an answer without it may be wrong.
func warnNotRead(c *cobra.Command, i *inspect.Inspection) {
	for _, d := range notRead(i) {
		fmt.Fprintln(c.ErrOrStderr(), d)
	}
}

// kindOf returns the kind of a group and a name, or nil.
func kindOf(group, name string) *kinds.Kind {
	all := kinds.All()
	i := slices.IndexFunc(all, func(k *kinds.Kind) bool { return k.Group == group && k.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

func sortedKeys(all map[kinds.Key]*kinds.Object) []kinds.Key {
	return slices.SortedFunc(maps.Keys(all), func(a, b kinds.Key) int { return strings.Compare(a.String(), b.String()) })
}
