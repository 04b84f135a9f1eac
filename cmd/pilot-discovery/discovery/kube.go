package discovery

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// kubeFlags configure the connection to an API server.
type kubeFlags struct {
	registries  string
	kubeconfig  string
	atHome      string // kubectl's default kubeconfig, for a server without another source
	client      crd.ClientOptions
	qps         float64
	timeout     time.Duration
	revision    string
	sharedMesh  string
	namespace   string // value of ISTIO_WATCH_NAMESPACE
	ignore      string // value of PILOT_IGNORE_RESOURCES
	include     string // value of PILOT_INCLUDE_RESOURCES
	kubeconfigs string // value of PILOT_MULTICLUSTER_KUBECONFIG_PATH
	podSecrets  bool   // value of LOCAL_CLUSTER_SECRET_WATCHER
}

func (f *kubeFlags) register(flags *pflag.FlagSet, e *env.Env) {
	flags.StringVar(&f.registries, "registries", "Kubernetes", "source of services: Kubernetes, or empty for only those in the configuration")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig of the API server to read. The default is the pod's own cluster, or without another source kubectl's kubeconfig")
	flags.Float64Var(&f.qps, "kubernetesApiQPS", crd.DefaultQPS, "maximum requests a second to the API server")
	flags.IntVar(&f.client.Burst, "kubernetesApiBurst", crd.DefaultBurst, "maximum burst of requests to the API server")
	flags.StringVar(&f.revision, "revision", e.Text("REVISION", ""),
		"revision of this control plane: objects with the label istio.io/rev of another revision are ignored")
	flags.StringVar(&f.sharedMesh, "sharedMeshConfig", e.Text("SHARED_MESH_CONFIG", ""),
		"ConfigMap in the root namespace with a mesh configuration that this server's own overrides")
	flags.DurationVar(&f.timeout, "remoteClusterTimeout", e.Duration("PILOT_REMOTE_CLUSTER_TIMEOUT", 30*time.Second),
		"time limit for remote clusters until the server is ready")

	f.namespace = e.Text("ISTIO_WATCH_NAMESPACE", "")
	f.ignore, f.include = e.Text("PILOT_IGNORE_RESOURCES", ""), e.Text("PILOT_INCLUDE_RESOURCES", "")
	f.kubeconfigs, f.podSecrets = e.Text("PILOT_MULTICLUSTER_KUBECONFIG_PATH", ""), e.Asked("LOCAL_CLUSTER_SECRET_WATCHER")
	f.client.Insecure = cli.Fields(e.Text("PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", ""))
	f.client.Host, f.client.Port = e.Text("KUBERNETES_SERVICE_HOST", ""), e.Text("KUBERNETES_SERVICE_PORT", "")
	f.atHome = input.KubeconfigAtHome(e)
}

func (f *kubeFlags) options(o *ingest.Options) error {
	registries := cli.Fields(f.registries)
	for _, r := range registries {
		if r != "Kubernetes" {
			return fmt.Errorf("service registry %s is not supported: --registries takes Kubernetes, or nothing", r)
		}
	}
	if err := f.limits(o); err != nil {
		return err
	}
	o.NoServices = len(registries) == 0
	o.Revision, o.SharedMesh, o.RemoteTimeout = f.revision, f.sharedMesh, f.timeout
	f.client.QPS, f.client.Version = float32(f.qps), version.Tag()
	o.RemoteClient = f.client
	var err error
	named := o.MeshSources()
	o.Client, err = f.connect(o.ConfigDir != "" || len(named) > 0 && !slices.Contains(named, ingest.KubernetesScheme), o.NoServices)
	return err
}

// secretsClient makes an external control plane read the Secrets of remote clusters from the cluster of its pod, if
// LOCAL_CLUSTER_SECRET_WATCHER says so.
func (f *kubeFlags) secretsClient(o *ingest.Options, external bool) (err error) {
	if !f.podSecrets || !external || f.kubeconfigs != "" || o.Client == nil {
		return nil
	}
	own := f.client
	own.Kubeconfig = ""
	if o.SecretsClient, err = crd.Config(own); err != nil {
		return fmt.Errorf("LOCAL_CLUSTER_SECRET_WATCHER=true: %w", err)
	}
	return nil
}

// limits sets what is read of clusters, from variables.
func (f *kubeFlags) limits(o *ingest.Options) error {
	if f.namespace != "" && len(validation.IsDNS1123Label(f.namespace)) > 0 {
		return fmt.Errorf("ISTIO_WATCH_NAMESPACE=%s is not the name of a namespace: write one, or nothing for all", f.namespace)
	}
	o.WatchNamespace, o.Kubeconfigs = f.namespace, f.kubeconfigs
	var unknown []string
	if o.Ignored, _, unknown = ingest.Ignored(cli.Fields(f.ignore), cli.Fields(f.include)); len(unknown) > 0 {
		return fmt.Errorf("PILOT_INCLUDE_RESOURCES=%s: %s is no kind of configuration that this server reads: write resources such as "+
			"wasmplugins.extensions.istio.io or *.telemetry.istio.io", f.include, unknown[0])
	}
	return nil
}

// noCluster is why a variable about API servers has no effect.
const noCluster = "no API server is read"

// idle is a variable, or a part of its value, that has no effect.
type idle struct{ variable, reason string }

// idle returns the variables without effect on a server with the options.
func (f *kubeFlags) idle(o *ingest.Options, external bool) (list []idle) {
	for _, v := range [][2]string{{"ISTIO_WATCH_NAMESPACE", f.namespace}, {"PILOT_IGNORE_RESOURCES", f.ignore}} {
		if v[1] != "" && o.Client == nil {
			list = append(list, idle{v[0], noCluster})
		}
	}
	const local = "LOCAL_CLUSTER_SECRET_WATCHER"
	switch {
	case !f.podSecrets:
	case f.kubeconfigs != "":
		list = append(list, idle{local, "PILOT_MULTICLUSTER_KUBECONFIG_PATH takes precedence"})
	case !external:
		list = append(list, idle{local, "EXTERNAL_ISTIOD is not true"})
	case o.Client == nil:
		list = append(list, idle{local, noCluster})
	}
	if f.include != "" && f.ignore == "" {
		list = append(list, idle{"PILOT_INCLUDE_RESOURCES", "PILOT_IGNORE_RESOURCES names no resources"})
	}
	_, unknown, _ := ingest.Ignored(cli.Fields(f.ignore), nil)
	for _, pattern := range unknown {
		list = append(list, idle{"PILOT_IGNORE_RESOURCES", pattern + " is no kind of configuration that this server reads"})
	}
	return list
}

// idle returns the variables about API servers that have no effect on a server with these flags.
func (f *flags) idle() []idle {
	list := f.kube.idle(&f.o.Options, f.o.External)
	untaint := "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS"
	for name, on := range map[string]bool{
		untaint: f.o.Untaint.On, "ENABLE_CLUSTER_TRUST_BUNDLE_API": f.o.Certificates.TrustBundle,
		clusterset.AutoExportVariable: f.o.MultiCluster.AutoExport,
	} {
		if on && f.o.Client == nil {
			list = append(list, idle{name, noCluster})
		}
	}
	if f.o.Untaint.Taint != names.TaintNotReady && !f.o.Untaint.On {
		list = append(list, idle{"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", untaint + " is not true"})
	}
	slices.SortFunc(list, func(a, b idle) int { return cmp.Compare(a.variable, b.variable) })
	return list
}

// connect returns the configuration of the API server to read, or nil. If there are other sources, a directory or
// sources of the mesh configuration, an API server is read only if the flags name a cluster or the server runs in one.
func (f *kubeFlags) connect(others, noServices bool) (*rest.Config, error) {
	inPod := f.client.Host != "" && f.client.Port != ""
	if others && (noServices || f.kubeconfig == "" && !inPod) {
		return nil, nil
	}
	own := f.client
	own.Kubeconfig = f.kubeconfig
	if own.Kubeconfig == "" && !inPod {
		if !slices.ContainsFunc(filepath.SplitList(f.atHome), cli.Exists) {
			return nil, nil // no source at all: bootstrap.New returns that error
		}
		own.Kubeconfig = f.atHome
	}
	return crd.Config(own)
}
