package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// clusterFlags are which cluster a command reads, and as whom. They are kubectl's, by the same names.
type clusterFlags struct {
	kubeconfig, context, as string
	asGroups                []string
	atHome                  string // the kubeconfig that kubectl would take
	host, port              string // of the cluster that this runs in
}

func (f *clusterFlags) register(flags *pflag.FlagSet, e *env, short, implies string) {
	flags.StringVarP(&f.kubeconfig, "kubeconfig", short, "", "kubeconfig of the cluster"+implies)
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig"+implies)
	flags.StringVar(&f.as, "as", "", "user to act as, as with kubectl")
	flags.StringArrayVar(&f.asGroups, "as-group", nil, "group to act as, with --as; may be repeated")
	f.atHome = kubeconfigAtHome(e)
	f.host, f.port = e.text("KUBERNETES_SERVICE_HOST", ""), e.text("KUBERNETES_SERVICE_PORT", "")
}

// named reports whether the user has named a cluster.
func (f *clusterFlags) named() bool { return f.kubeconfig != "" || f.context != "" || f.as != "" }

// kubeconfigAtHome returns the kubeconfig that kubectl would take.
func kubeconfigAtHome(e *env) string {
	if path := e.text("KUBECONFIG", ""); path != "" {
		return path
	}
	if home := e.text("HOME", ""); home != "" {
		return filepath.Join(home, ".kube", "config")
	}
	return ""
}

// errNoKubeconfig is returned where there is no cluster to read.
var errNoKubeconfig = errors.New("no kubeconfig: name one by --kubeconfig")

// client returns how to reach the cluster. It takes the kubeconfig that is named, else the cluster in which this runs,
// else the kubeconfig that kubectl would take. Without any of them it returns errNoKubeconfig.
func (f *clusterFlags) client() (crd.ClientOptions, error) {
	o := crd.ClientOptions{Kubeconfig: f.kubeconfig, Context: f.context, Host: f.host, Port: f.port, Version: tag()}
	inPod := f.host != "" && f.port != ""
	if o.Kubeconfig != "" || inPod && f.context == "" {
		return o, nil
	}
	o.Kubeconfig = f.atHome
	if !slices.ContainsFunc(filepath.SplitList(f.atHome), func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}) {
		return o, errNoKubeconfig
	}
	return o, nil
}

// config returns the configuration of a client.
func (f *clusterFlags) config(o crd.ClientOptions) (*rest.Config, error) {
	if f.as == "" && len(f.asGroups) > 0 {
		return nil, errors.New("--as-group: name a user by --as, too")
	}
	c, err := crd.Config(o)
	if err != nil {
		return nil, err
	}
	if f.as != "" {
		c.Impersonate = rest.ImpersonationConfig{UserName: f.as, Groups: f.asGroups}
	}
	return c, nil
}
