package crd

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/util/flowcontrol"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Default limits of requests to an API server.
const (
	DefaultQPS   = 80
	DefaultBurst = 160
)

// ClientOptions configure a connection to an API server. Empty fields have defaults.
type ClientOptions struct {
	// Kubeconfig is a path, or several with colons between them. If it is empty, the server's own cluster is used.
	Kubeconfig string
	Context    string                     // context of the kubeconfig; default its current context
	Overrides  *clientcmd.ConfigOverrides // optional settings that take precedence over the kubeconfig, as kubectl's flags do

	// The fields below are for the server's own cluster.
	Host      string // KUBERNETES_SERVICE_HOST
	Port      string // KUBERNETES_SERVICE_PORT
	TokenFile string
	CAFile    string

	QPS     float32
	Burst   int
	Version string // version of this server, for the user agent

	// Insecure names the unsafe features that a kubeconfig of Remote may use: clientCertificate, clientKey,
	// certificateAuthority, tokenFile, exec, authProvider, insecureSkipTLSVerify. They are the options of Istio's
	// PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS.
	Insecure []string
}

// Credentials of a pod for its cluster.
const (
	inClusterToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
	inClusterCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// Config returns the client configuration for a kubeconfig, or for the server's own cluster.
func Config(o ClientOptions) (*rest.Config, error) {
	if o.Kubeconfig == "" {
		return inCluster(o)
	}
	c, err := o.kubeconfig().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", o.Kubeconfig, err)
	}
	return o.tune(c), nil
}

// kubeconfig returns a loader for the kubeconfigs and the context.
func (o ClientOptions) kubeconfig() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	if paths := filepath.SplitList(o.Kubeconfig); len(paths) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: paths}
	}
	var overrides clientcmd.ConfigOverrides
	if o.Overrides != nil {
		overrides = *o.Overrides
	}
	overrides.CurrentContext = cmp.Or(o.Context, overrides.CurrentContext)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
}

// Namespace returns the namespace of the kubeconfig's context, or "default".
func Namespace(o ClientOptions) string {
	if o.Kubeconfig == "" {
		return metav1.NamespaceDefault
	}
	ns, _, err := o.kubeconfig().Namespace()
	if err != nil || ns == "" {
		return metav1.NamespaceDefault
	}
	return ns
}

func inCluster(o ClientOptions) (*rest.Config, error) {
	if o.Host == "" || o.Port == "" {
		return nil, fmt.Errorf("neither a kubeconfig is given nor is this a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	o.TokenFile = cmp.Or(o.TokenFile, inClusterToken)
	o.CAFile = cmp.Or(o.CAFile, inClusterCA)
	for _, path := range []string{o.TokenFile, o.CAFile} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("use the pod's ServiceAccount: %w", err)
		}
	}
	// The client reads the token file regularly, because kubelets replace it.
	return o.tune(&rest.Config{
		Host: "https://" + net.JoinHostPort(o.Host, o.Port), BearerTokenFile: o.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: o.CAFile},
	}), nil
}

// Remote returns the client configuration for a kubeconfig from a Secret or a file. Writers of them must not be able to
// make this server run a program, read its files or trust an unverified server, so such features are refused unless
// o.Insecure names them.
func Remote(kubeconfig []byte, o ClientOptions) (*rest.Config, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if err := refuse(raw, o.Insecure); err != nil {
		return nil, err
	}
	c, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return o.tune(c), nil
}

// refuse checks all entries, even unused ones, because the current context is just a field of the same text.
func refuse(c *clientcmdapi.Config, allowed []string) error {
	var bad []string
	check := func(used bool, entry, field, option string) {
		if used && !slices.Contains(allowed, option) {
			bad = append(bad, fmt.Sprintf("%s has %s, which has to be allowed by PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS=%s",
				entry, field, option))
		}
	}
	for name, u := range c.AuthInfos {
		entry := fmt.Sprintf("user %q", name)
		check(u.Exec != nil, entry, "exec", "exec")
		check(u.AuthProvider != nil, entry, "auth-provider", "authProvider")
		check(u.TokenFile != "", entry, "tokenFile", "tokenFile")
		check(u.ClientCertificate != "", entry, "client-certificate", "clientCertificate")
		check(u.ClientKey != "", entry, "client-key", "clientKey")
	}
	for name, cl := range c.Clusters {
		entry := fmt.Sprintf("cluster %q", name)
		check(cl.InsecureSkipTLSVerify, entry, "insecure-skip-tls-verify", "insecureSkipTLSVerify")
		check(!strings.HasPrefix(cl.Server, "https://"), entry, "a server without https", "insecureSkipTLSVerify")
		check(cl.CertificateAuthority != "", entry, "certificate-authority", "certificateAuthority")
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("the kubeconfig is refused: %s", strings.Join(bad, "; "))
}

func (o ClientOptions) tune(c *rest.Config) *rest.Config {
	c.QPS, c.Burst = o.QPS, o.Burst
	c.QPS = cmp.Or(c.QPS, DefaultQPS)
	c.Burst = cmp.Or(c.Burst, DefaultBurst)
	c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst) // shared by all clients with this configuration
	c.UserAgent = "pilot-discovery"
	if o.Version != "" {
		c.UserAgent += "/" + o.Version
	}
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.Timeout = 0 // a timeout would end watches; other requests have deadlines of their own
	return c
}
