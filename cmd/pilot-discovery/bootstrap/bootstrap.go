package bootstrap

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/pilot/agent/bootstrap"
)

// flags are the identity of an Envoy and its initial settings.
type flags struct {
	o                                             bootstrap.Options
	name, kind, interception, ip, domain, cluster string
	labels                                        map[string]string
	metadata                                      []string
}

// Command returns the command pilot-discovery bootstrap.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "bootstrap --node NAME.NAMESPACE --ads HOST:PORT",
		Short: "Print the configuration that connects an Envoy of your own to a control plane",
		Long: `Print the configuration that connects an Envoy of your own to a control plane.

Any build of Envoy will do, without an agent: envoy -c envoy.json --disable-hot-restart

A sidecar listens on 127.0.0.1 at the ports of services. If iptables rules redirect traffic to it,
add --interception REDIRECT. Without --sds it has no certificates, and starts only if no service
requires mTLS: create a PeerAuthentication of mode DISABLE in the root namespace.`,
		Example: `  pilot-discovery bootstrap --node client.default --ads 127.0.0.1:15010 >envoy.json
  pilot-discovery bootstrap --node ingress.istio-system --type router --labels istio=ingressgateway --ads 127.0.0.1:15010`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := f.proxy()
			if err != nil {
				return err
			}
			f.o.Node = node.Format(p)
			if err := extend(f.o.Node.Metadata, f.metadata); err != nil {
				return err
			}
			b, err := bootstrap.New(f.o)
			if err != nil {
				return err
			}
			text, err := bootstrap.JSON(b)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.name, "node", "", "name of the Envoy: NAME.NAMESPACE, the Pod's if it has one")
	flags.StringVar(&f.o.ADS, "ads", "", "address of the control plane's plaintext ADS: HOST:PORT, or the path of a Unix socket")
	flags.StringVar(&f.o.SDS, "sds", "", "address of the SDS server of its certificates: the path of a Unix socket, or HOST:PORT; "+
		"empty for no certificates")
	flags.StringVar(&f.o.Admin, "admin", "127.0.0.1:15000", "HOST:PORT of Envoy's admin API; port 0 for a free one")
	flags.BoolVar(&f.o.StateOfTheWorld, "state-of-the-world", false,
		"use state-of-the-world xDS, with all resources in each response, instead of delta xDS")
	flags.StringVar(&f.kind, "type", string(node.Sidecar), "sidecar, or router for a gateway")
	flags.StringVar(&f.interception, "interception", string(node.None),
		"how traffic reaches a sidecar: NONE, clients connect to it; REDIRECT or TPROXY, iptables redirects it")
	flags.StringVar(&f.ip, "ip", "127.0.0.1", "IP address of the Envoy, the Pod's if it has one")
	flags.StringVar(&f.domain, "domain", "cluster.local", "DNS domain of the cluster")
	flags.StringVar(&f.cluster, "cluster", "Kubernetes", "ID of the Kubernetes cluster of the Envoy")
	flags.StringToStringVar(&f.labels, "labels", nil, "labels of the Envoy, the Pod's if it has one: NAME=VALUE,...")
	flags.StringArrayVar(&f.metadata, "metadata", nil,
		"additional metadata of its node: KEY=VALUE, where VALUE is text, or JSON if it begins with { or [; may be repeated")
	cli.CompleteFlag(c, "type", string(node.Sidecar), string(node.Router))
	cli.CompleteFlag(c, "interception", string(node.None), string(node.Redirect), string(node.TPROXY))
	_ = c.MarkFlagRequired("node")
	_ = c.MarkFlagRequired("ads")
	return c
}

func (f *flags) proxy() (*node.Proxy, error) {
	p := &node.Proxy{Type: node.Type(f.kind), Interception: node.Interception(f.interception), Cluster: f.cluster, Labels: f.labels,
		IPs: []string{f.ip}}
	var err error
	if p.Name, p.Namespace, err = cli.SplitName(f.name); err != nil {
		return nil, fmt.Errorf("--node=%s: %w", cli.Quoted(f.name), err)
	}
	if p.Type != node.Sidecar && p.Type != node.Router {
		return nil, fmt.Errorf("--type=%s: write sidecar or router", cli.Quoted(f.kind))
	}
	if p.Interception != node.None && p.Interception != node.Redirect && p.Interception != node.TPROXY {
		return nil, fmt.Errorf("--interception=%s: write NONE, REDIRECT or TPROXY", cli.Quoted(f.interception))
	}
	if _, err := netip.ParseAddr(f.ip); err != nil {
		return nil, fmt.Errorf("--ip=%s: write an IP address", cli.Quoted(f.ip))
	}
	if err := cli.CheckDomain(f.domain); err != nil {
		return nil, fmt.Errorf("--domain=%s: %w", cli.Quoted(f.domain), err)
	}
	if err := cli.CheckClusterID(f.cluster); err != nil {
		return nil, fmt.Errorf("--cluster=%s: %w", cli.Quoted(f.cluster), err)
	}
	p.Domain = p.Namespace + ".svc." + f.domain
	return p, nil
}

// extend adds the user's entries to the metadata of a node.
func extend(metadata *structpb.Struct, entries []string) error {
	for _, entry := range entries {
		key, text, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return fmt.Errorf("--metadata=%s: write KEY=VALUE", cli.Quoted(entry))
		}
		value := structpb.NewStringValue(text)
		if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
			if err := protojson.Unmarshal([]byte(text), value); err != nil {
				return fmt.Errorf("--metadata=%s: %w", cli.Quoted(entry), err)
			}
		}
		metadata.Fields[key] = value
	}
	return nil
}
