package input

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// Cluster selects the cluster that a command reads, and the user. Its flags have the names of kubectl's.
type Cluster struct {
	kubeconfig string
	over       clientcmd.ConfigOverrides
	atHome     string // kubectl's default kubeconfig
	host, port string // API server of the cluster in which the command runs
}

// Register registers the flags. short is the short form of --kubeconfig, and implies ends the descriptions.
func (f *Cluster) Register(flags *pflag.FlagSet, e *env.Env, short, implies string) {
	flags.StringVarP(&f.kubeconfig, "kubeconfig", short, "", "kubeconfig of the cluster"+implies)
	info := func(name, about string) clientcmd.FlagInfo {
		return clientcmd.FlagInfo{LongName: name, Description: about}
	}
	server := info("server", "address of the API server, instead of the kubeconfig's"+implies)
	server.ShortName = "s"
	clientcmd.BindOverrideFlags(&f.over, flags, clientcmd.ConfigOverrideFlags{
		CurrentContext: info("context", "context of the kubeconfig"+implies),
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{
			ClusterName:  info("cluster", "cluster of the kubeconfig, instead of the context's"+implies),
			AuthInfoName: info("user", "user of the kubeconfig, instead of the context's"+implies),
		},
		ClusterOverrideFlags: clientcmd.ClusterOverrideFlags{
			APIServer: server, CertificateAuthority: info("certificate-authority",
				"file with the certificates that the API server's is verified by"),
			InsecureSkipTLSVerify: info("insecure-skip-tls-verify", "do not verify the certificate of the API server"),
			TLSServerName:         info("tls-server-name", "name in the certificate of the API server, where it is not its address"),
		},
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Token:             info("token", "bearer token for the API server"),
			ClientCertificate: info("client-certificate", "file with the certificate of the user"),
			ClientKey:         info("client-key", "file with the key of the user"),
			Impersonate:       info("as", "user to act as, as with kubectl"), ImpersonateUID: info("as-uid", "UID to act as, with --as"),
			ImpersonateGroups: info("as-group", "group to act as, with --as; may be repeated"),
		},
		Timeout: clientcmd.FlagInfo{LongName: "request-timeout", Default: "0",
			Description: "time that one request to the API server may take; 0: as long as it takes"},
	})
	f.atHome = KubeconfigAtHome(e)
	f.host, f.port = e.Text("KUBERNETES_SERVICE_HOST", ""), e.Text("KUBERNETES_SERVICE_PORT", "")
}

// Complete adds completions to the registered flags of a command.
func (f *Cluster) Complete(c *cobra.Command) {
	for _, name := range []string{"context", "cluster", "user"} {
		cli.CompleteWith(c, name, func(*cobra.Command, []string) []string {
			paths := filepath.SplitList(cmp.Or(f.kubeconfig, f.atHome))
			config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: paths}).Load()
			if err != nil {
				return nil
			}
			switch name {
			case "context":
				return slices.Sorted(maps.Keys(config.Contexts))
			case "cluster":
				return slices.Sorted(maps.Keys(config.Clusters))
			}
			return slices.Sorted(maps.Keys(config.AuthInfos))
		})
	}
}

// chosen reports whether the flags name an API server or a part of a kubeconfig.
func (f *Cluster) chosen() bool {
	return f.over.CurrentContext != "" || f.over.Context.Cluster != "" || f.over.Context.AuthInfo != "" || f.over.ClusterInfo.Server != ""
}

// Named reports whether the flags name a cluster.
func (f *Cluster) Named() bool {
	return f.kubeconfig != "" || f.chosen() || f.over.AuthInfo.Impersonate != "" || f.over.AuthInfo.Token != ""
}

// KubeconfigAtHome returns kubectl's default kubeconfig.
func KubeconfigAtHome(e *env.Env) string {
	if path := e.Text("KUBECONFIG", ""); path != "" {
		return path
	}
	if home := e.Text("HOME", ""); home != "" {
		return filepath.Join(home, ".kube", "config")
	}
	return ""
}

// ErrNoKubeconfig is returned if there is no cluster to read.
var ErrNoKubeconfig = errors.New("no kubeconfig: name one by --kubeconfig")

// Client returns the options for a client of the cluster. It uses the kubeconfig that the flags name, else the cluster
// in which the command runs, else kubectl's default kubeconfig. If there is none of these and the flags name no address
// of an API server, it returns ErrNoKubeconfig.
func (f *Cluster) Client() (crd.ClientOptions, error) {
	o := crd.ClientOptions{Kubeconfig: f.kubeconfig, Overrides: &f.over, Host: f.host, Port: f.port, Version: version.Tag()}
	inPod := f.host != "" && f.port != ""
	if o.Kubeconfig != "" || inPod && !f.chosen() {
		return o, nil
	}
	o.Kubeconfig = f.atHome
	if !slices.ContainsFunc(filepath.SplitList(f.atHome), cli.Exists) {
		if f.over.ClusterInfo.Server != "" {
			o.Kubeconfig = os.DevNull
			return o, nil
		}
		return o, ErrNoKubeconfig
	}
	return o, nil
}

// Config returns the configuration of a client.
func (f *Cluster) Config(o crd.ClientOptions) (*rest.Config, error) {
	as := f.over.AuthInfo
	if as.Impersonate == "" && len(as.ImpersonateGroups) > 0 {
		return nil, errors.New("--as-group: name a user by --as, too")
	}
	c, err := crd.Config(o)
	if err != nil {
		return nil, err
	}
	if o.Kubeconfig == "" { // in a pod, before the flags were parsed
		if as.Impersonate != "" {
			c.Impersonate = rest.ImpersonationConfig{UserName: as.Impersonate, UID: as.ImpersonateUID, Groups: as.ImpersonateGroups}
		}
		if as.Token != "" {
			c.BearerToken, c.BearerTokenFile = as.Token, ""
		}
	}
	return c, nil
}

// Connection returns the connection to the cluster that the flags name.
func (f *Cluster) Connection() (*rest.Config, error) {
	o, err := f.Client()
	if err != nil {
		return nil, err
	}
	return f.Config(o)
}
