package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	// protojson needs the Go types of these messages to print the content of an Any.
	_ "github.com/cncf/xds/go/udpa/type/v1"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// Command returns the command pilot-discovery translate.
func Command(e *env.Env) *cobra.Command {
	var f input.World
	var nodeFile, pod, output string
	var strict bool
	c := &cobra.Command{
		Use:   "translate DIR --proxy POD.NAMESPACE",
		Short: "Print what a proxy would be sent",
		Long: `Print what a proxy would be sent: the proxy of a Pod in the directory, or a proxy with the node in a
file.

With --proxy the proxy is the one that injection would add to the Pod: a sidecar, or a gateway if
the annotation inject.istio.io/templates is gateway. --node takes the node of any Envoy.`,
		Example: `  pilot-discovery translate mesh --proxy productpage-v1.bookinfo -o summary
  pilot-discovery translate mesh --proxy web-1.default -o name
  pilot-discovery translate mesh --node envoy.json`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.ConfigDir = args[0]
			i, err := input.Read(c, f, ingest.Options{})
			if err != nil {
				return err
			}
			n, err := nodeOf(i, nodeFile, pod)
			if err != nil {
				return err
			}
			for _, d := range i.Findings {
				fmt.Fprintln(c.ErrOrStderr(), terminal.Plain(d.String()))
			}
			all, err := i.Resources(n)
			if err != nil {
				return err
			}
			show := map[string]func(io.Writer, map[string][]*envoy.Resource) error{
				"json": printResources, "yaml": printYAML, "name": printNames, "summary": printSummary, "table": printSummary, "wide": printSummary,
			}[output]
			if err := show(c.OutOrStdout(), all); err != nil {
				return err
			}
			if strict && (report.Report{Findings: i.Findings}).Count(diag.Error) > 0 {
				return cli.Exit(1)
			}
			return nil
		},
	}
	f.RegisterMesh(c.Flags(), e, "namespace", "n")
	c.Flags().StringVar(&nodeFile, "node", "", "file with the Envoy node as JSON: {\"id\": ..., \"metadata\": {...}}, or with a "+
		"bootstrap that contains it")
	c.Flags().BoolVar(&strict, "strict", false, "fail if validate would fail")
	c.Flags().StringVar(&pod, "proxy", "", "Pod in the directory: POD.NAMESPACE")
	c.Flags().StringVar(&pod, "pod", "", "the same as --proxy")
	cli.OutputFlag(c, &output, "json", "yaml", "name", "summary", "table", "wide")
	c.MarkFlagsOneRequired("node", "pod", "proxy")
	c.MarkFlagsMutuallyExclusive("node", "pod", "proxy")
	for _, name := range []string{"proxy", "pod"} {
		cli.CompleteWith(c, name, func(c *cobra.Command, args []string) []string {
			if len(args) == 0 {
				return nil
			}
			f.ConfigDir = args[0]
			i, err := input.Read(c, f, ingest.Options{})
			if err != nil {
				return nil
			}
			return i.Pods()
		})
	}
	return c
}

// nodeOf returns the node in a file, or the node of the proxy of a Pod.
func nodeOf(i *inspect.Inspection, file, pod string) (*corev3.Node, error) {
	if file != "" {
		return readNode(file)
	}
	name, namespace, err := cli.SplitName(pod)
	if err != nil {
		return nil, fmt.Errorf("--proxy=%s: %w", cli.Quoted(pod), err)
	}
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	if n := i.PodNode(name, namespace); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("--proxy=%s: the directory has no such Pod%s", pod, diag.NearNames(pod, i.Pods()))
}

// readNode reads a node, or an Envoy bootstrap that contains one.
func readNode(path string) (*corev3.Node, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	bootstrap := struct{ Node json.RawMessage }{}
	if json.Unmarshal(text, &bootstrap) == nil && bootstrap.Node != nil {
		text = bootstrap.Node
	}
	n := &corev3.Node{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, n); err != nil {
		return nil, fmt.Errorf("read the node %s: %w", path, err)
	}
	return n, nil
}

// printResources writes one JSON object: for each type, by its short name, the resources by name. Equal resources give
// equal bytes.
func printResources(w io.Writer, all map[string][]*envoy.Resource) error {
	short := map[string]string{
		envoy.ClusterType: "clusters", envoy.EndpointType: "endpoints", envoy.ListenerType: "listeners", envoy.RouteType: "routes",
		envoy.VirtualHostType: "virtualHosts",
	}
	out := map[string]map[string]json.RawMessage{}
	for _, typeURL := range slices.Sorted(maps.Keys(all)) {
		byName := map[string]json.RawMessage{}
		for _, r := range all[typeURL] {
			text, err := debug.SentJSON(&anypb.Any{TypeUrl: typeURL, Value: r.Value()})
			if err != nil {
				return fmt.Errorf("print %s: %w", r.Name, err)
			}
			byName[r.Name] = text
		}
		out[cmp.Or(short[typeURL], typeURL)] = byName
	}
	// Marshalling sorts the keys of maps and compacts raw JSON, which removes the spaces that protojson inserts at
	// random.
	return cli.PrintValue(w, out, "json")
}

// printYAML writes the output of printResources as YAML.
func printYAML(w io.Writer, all map[string][]*envoy.Resource) error {
	var text bytes.Buffer
	if err := printResources(&text, all); err != nil {
		return err
	}
	out, err := yaml.JSONToYAML(text.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// printNames writes type/name of each resource.
func printNames(w io.Writer, all map[string][]*envoy.Resource) error {
	for _, typeURL := range slices.Sorted(maps.Keys(all)) {
		for _, r := range all[typeURL] {
			if _, err := fmt.Fprintf(w, "%s/%s\n", envoy.ShortType(typeURL), r.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
