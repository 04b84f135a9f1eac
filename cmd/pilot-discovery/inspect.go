package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	// The types that protojson has to know to print what is inside an Any.
	_ "github.com/cncf/xds/go/udpa/type/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

func validateCommand(e *env) *cobra.Command {
	var f worldFlags
	var files []string
	var output string
	c := &cobra.Command{
		Use:   "validate [-f] PATH...",
		Short: "Print everything that is wrong with configuration; fail on errors",
		Long: `Print everything that is wrong with files of configuration, with directories of them, or with the standard input, which is "-"; fail on errors.

  pilot-discovery validate mesh
  pilot-discovery validate -f services.yaml -f routes.yaml
  kubectl get virtualservice,destinationrule,service -A -o yaml | pilot-discovery validate -

References between objects are judged among all that is given: give the Services with the routes that lead to them.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("unknown output format %q: json or nothing", output)
			}
			paths := slices.Concat(args, files)
			if len(paths) == 0 {
				return errors.New("nothing to validate: name files or directories, or - for the standard input")
			}
			texts, err := file.Read(paths, c.InOrStdin(), limits.Default())
			if err != nil {
				return err
			}
			i, err := readOnce(c, f, ingest.Options{Texts: texts})
			if err != nil {
				return err
			}
			if err := printFindings(c.OutOrStdout(), i, output == "json"); err != nil {
				return err
			}
			if i.Refusal != nil || errorsIn(i.Findings) > 0 {
				return failed{}
			}
			if i.Objects == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no objects: of what was given nothing is YAML with an object of a kind that is known")
			}
			return nil
		},
	}
	f.registerMesh(c.Flags(), e)
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "file or directory, or - for the standard input; may be repeated")
	c.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for one line each")
	return c
}

func translateCommand(e *env) *cobra.Command {
	var f worldFlags
	var nodeFile, pod, output string
	var strict bool
	c := &cobra.Command{
		Use:   "translate DIR --pod NAME.NAMESPACE",
		Short: "Print what a proxy would be sent",
		Long: `Print what a proxy would be sent: the proxy of a Pod that the directory has, or one that says of itself what a file has.

  pilot-discovery translate mesh --pod web-1.default -o summary
  pilot-discovery translate mesh --node node.json

With --pod the proxy is what injection would make of the Pod: a sidecar, or a gateway where the annotation inject.istio.io/templates is gateway.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "json" && output != "summary" {
				return fmt.Errorf("unknown output format %q: json or summary", output)
			}
			f.configDir = args[0]
			i, err := readOnce(c, f, ingest.Options{})
			if err != nil {
				return err
			}
			n, err := nodeOf(i, nodeFile, pod)
			if err != nil {
				return err
			}
			for _, d := range i.Findings {
				fmt.Fprintln(c.ErrOrStderr(), d)
			}
			all, err := i.Resources(n)
			if err != nil {
				return err
			}
			show := printResources
			if output == "summary" {
				show = printSummary
			}
			if err := show(c.OutOrStdout(), all); err != nil {
				return err
			}
			if strict && errorsIn(i.Findings) > 0 {
				return failed{}
			}
			return nil
		},
	}
	f.registerMesh(c.Flags(), e)
	c.Flags().StringVar(&nodeFile, "node", "", "file with the Envoy node, as JSON: {\"id\": ..., \"metadata\": {...}}, or with the bootstrap that has it")
	c.Flags().BoolVar(&strict, "strict", false, "fail when validate would")
	c.Flags().StringVar(&pod, "pod", "", "Pod of the directory whose proxy it is: NAME.NAMESPACE")
	c.Flags().StringVarP(&output, "output", "o", "json", "json by type, or summary")
	c.MarkFlagsOneRequired("node", "pod")
	c.MarkFlagsMutuallyExclusive("node", "pod")
	return c
}

// nodeOf returns the node of a file, or of the proxy of a Pod.
func nodeOf(i *inspect.Inspection, file, pod string) (*corev3.Node, error) {
	if file != "" {
		return readNode(file)
	}
	name, namespace, err := splitName(pod)
	if err != nil {
		return nil, fmt.Errorf("--pod=%s: %w", quoted(pod), err)
	}
	if n := i.PodNode(name, namespace); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("--pod=%s: the directory has no such Pod%s", pod, nearNames(pod, i.Pods()))
}

// readOnce reads configuration once, from the directory of the flags or from the texts of the options. What it logs
// besides its findings is not shown.
func readOnce(c *cobra.Command, f worldFlags, o ingest.Options) (*inspect.Inspection, error) {
	if err := meshChecks().run(c.Flags()); err != nil {
		return nil, err
	}
	if err := checkMeshFiles(c.Flags()); err != nil {
		return nil, err
	}
	o.Logger, o.Limits, o.NoWatch = slog.New(slog.DiscardHandler), limits.Default(), true
	f.options(&o)
	return inspect.Read(c.Context(), o, catalog.Features())
}

func errorsIn(findings []diag.Diagnostic) int {
	n := 0
	for _, d := range findings {
		if d.Severity == diag.Error {
			n++
		}
	}
	return n
}

func printFindings(w io.Writer, i *inspect.Inspection, asJSON bool) error {
	if asJSON {
		report := struct {
			Objects  int               `json:"objects"`
			Errors   int               `json:"errors"`
			Warnings int               `json:"warnings"`
			Refusal  string            `json:"refusal,omitempty"` // why a server would not start
			Findings []diag.Diagnostic `json:"findings"`
		}{i.Objects, errorsIn(i.Findings), len(i.Findings) - errorsIn(i.Findings), "", append([]diag.Diagnostic{}, i.Findings...)}
		if i.Refusal != nil {
			report.Refusal = i.Refusal.Error()
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	var b bytes.Buffer
	for _, d := range i.Findings {
		fmt.Fprintln(&b, d)
	}
	if i.Refusal != nil {
		fmt.Fprintln(&b, "a server would refuse to start:", i.Refusal)
	} else {
		errors := errorsIn(i.Findings)
		fmt.Fprintf(&b, "%s in force, %s, %s\n", count(i.Objects, "object"), count(errors, "error"), count(len(i.Findings)-errors, "warning"))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// readNode reads a node, or the bootstrap of an Envoy that has one.
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

// printResources writes one JSON object: for each type, by its short name, the resources by name. The same resources
// give the same bytes.
func printResources(w io.Writer, all map[string][]*envoy.Resource) error {
	short := map[string]string{
		envoy.ClusterType: "clusters", envoy.EndpointType: "endpoints", envoy.ListenerType: "listeners", envoy.RouteType: "routes", envoy.VirtualHostType: "virtualHosts",
	}
	out := map[string]map[string]json.RawMessage{}
	for _, typeURL := range slices.Sorted(maps.Keys(all)) {
		byName := map[string]json.RawMessage{}
		for _, r := range all[typeURL] {
			text, err := protojson.Marshal(&anypb.Any{TypeUrl: typeURL, Value: r.Value()})
			if err != nil {
				return fmt.Errorf("print %s: %w", r.Name, err)
			}
			byName[r.Name] = text
		}
		out[cmp.Or(short[typeURL], typeURL)] = byName
	}
	// Marshalling sorts the keys of maps and compacts what is raw: the spaces that protojson puts in at random are
	// gone.
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
