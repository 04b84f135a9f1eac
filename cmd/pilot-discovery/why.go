package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/why"
)

// arrow may stand between the source and where the request goes.
const arrow = "→"

// withoutArrow returns the arguments with the arrow of why as it is no flag.
func withoutArrow(args []string) []string {
	if at := slices.Index(args, "->"); at > 0 && args[0] == "why" {
		args = slices.Clone(args)
		args[at] = arrow
	}
	return args
}

type whyFlags struct {
	judgeFlags
	headers []string
	query   inspect.Query
}

func whyCommand(e *env) *cobra.Command {
	f := &whyFlags{}
	c := &cobra.Command{
		Use:   "why SOURCE HOST:PORT",
		Short: "Print which way a request goes, and why: each decision, its object and line, and what was not taken",
		Long: `Print which way a request goes that the proxy SOURCE sends, NAME.NAMESPACE, and why.

Of each decision it says what it comes from, and why nothing else was taken: the listener and its filter chain, the virtual host, the route, the cluster with its endpoints and their TLS, and on the other side the filter chain, the PeerAuthentications and the AuthorizationPolicies that let the request through or not.

It reads what both proxies are sent, as Envoy would, from a directory or from the cluster of the kubeconfig, which is only read. A token in the request is not verified: rules that want one do not match.

The exit code is 0 if the request reaches an application, 79 if it does not, and 1 if the command could not do its work.`,
		Example: `  pilot-discovery why productpage-1.bookinfo reviews:9080 --path /reviews/0 --configDir mesh
  pilot-discovery why productpage-1.bookinfo "->" http://reviews:9080/reviews/0 --header end-user=jason
  pilot-discovery why istio-ingress-0.istio-system shop.example.com:80 -o json`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.registerMesh(flags, e, "istioNamespace", "i")
	flags.StringVar(&f.configDir, "configDir", "", "directory of YAML that describes the mesh; the cluster by default")
	flags.StringVar(&f.query.Path, "path", "", "path of the request, with its query; / by default")
	flags.StringVar(&f.query.Method, "method", "GET", "method of the request")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header of the request: NAME=VALUE; may be repeated")
	flags.BoolVar(&f.query.TLS, "tls", false, "the application itself speaks TLS")
	flags.StringVarP(&f.output, "output", "o", "text", "text or json")
	f.registerCluster(flags, e)
	return c
}

func (f *whyFlags) run(c *cobra.Command, args []string) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("unknown output format %q: text or json", f.output)
	}
	if len(args) == 3 {
		if args[1] != arrow {
			return fmt.Errorf("%s: write SOURCE -> HOST:PORT", args[1])
		}
		args = []string{args[0], args[2]}
	}
	if _, _, err := splitName(args[0]); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	q, err := inspect.ParseTarget(args[1])
	if err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	q.Source, q.Method, q.TLS, q.Headers = args[0], f.query.Method, q.TLS || f.query.TLS, map[string]string{}
	if f.query.Path != "" {
		q.Path = f.query.Path
	}
	for _, h := range f.headers {
		k, v, ok := strings.Cut(h, "=")
		if name, value, colon := strings.Cut(h, ": "); colon && (!ok || len(name) < len(k)) {
			k, v, ok = name, value, true
		}
		if !ok || k == "" {
			return fmt.Errorf("--header=%s: write NAME=VALUE", quoted(h))
		}
		q.Headers[k] = v
	}
	o := ingest.Options{Revision: f.revision, Limits: limits.Default()}
	if f.configDir == "" {
		f.useKube, f.elsewhere = true, "a directory by --configDir"
		if err := f.readCluster(c, &o, false); err != nil {
			return err
		}
	}
	i, err := readOnce(c, f.worldFlags, o)
	if err != nil {
		return f.tooLong(err)
	}
	if i.Snapshot == nil {
		return i.Refusal
	}
	if !slices.Contains(i.Pods(), q.Source) {
		return fmt.Errorf("%s: there is no such Pod%s", q.Source, nearNames(q.Source, i.Pods()))
	}
	way, err := i.Why(q)
	if err != nil {
		return err
	}
	show := printWay
	if f.output == "json" {
		show = printWayJSON
	}
	if err := show(c.OutOrStdout(), i, q, way); err != nil {
		return err
	}
	if way.Status != 200 {
		return failed{exitFound}
	}
	return nil
}

// printWay writes the way of a request for a person.
func printWay(w io.Writer, i *inspect.Inspection, q inspect.Query, way *inspect.Way) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s sends %s %s to %s:%d", q.Source, q.Method, orSlash(q.Path), q.Host, q.Port)
	if way.Service != "" {
		fmt.Fprintf(&out, ", which is %s", way.Service)
	}
	if way.Address != "" && way.Address != q.Host {
		fmt.Fprintf(&out, " at %s", way.Address)
	}
	fmt.Fprintln(&out)
	steps(&out, i, way.Outbound.Steps)
	arrivals(&out, i, way.Arrivals)
	fmt.Fprintln(&out)
	switch {
	case way.Status == 200 && way.Reason == "":
		fmt.Fprintln(&out, "It reaches the application.")
	case way.Status == 200:
		fmt.Fprintf(&out, "It reaches the application, but not always: %s\n", way.Reason)
	case way.Status == 0:
		fmt.Fprintf(&out, "The connection is closed: %s\n", way.Reason)
	default:
		fmt.Fprintf(&out, "It is answered with status %d: %s\n", way.Status, way.Reason)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// arrivals writes what becomes of a request where it arrives.
func arrivals(out *bytes.Buffer, i *inspect.Inspection, list []inspect.Arrival) {
	for _, a := range list {
		switch {
		case a.Pod == "":
			fmt.Fprintf(out, "\nAt %s, which is no Pod of the mesh.\n", a.Endpoint)
			continue
		case a.Answer == nil:
			fmt.Fprintf(out, "\nAt %s (%s), which has no proxy.\n", a.Pod, a.Endpoint)
			continue
		}
		fmt.Fprintf(out, "\nAt %s (%s)\n", a.Pod, a.Endpoint)
		if a.Identity != "" {
			fmt.Fprintf(out, "  who calls: %s\n", a.Identity)
		} else {
			fmt.Fprintln(out, "  who calls: nobody that has shown a certificate of the mesh")
		}
		fmt.Fprintf(out, "  mutual TLS: %s", a.MTLS)
		if len(a.Origins) > 0 {
			fmt.Fprintf(out, ", by %s", strings.Join(a.Origins, "; "))
		}
		fmt.Fprintln(out)
		steps(out, i, a.Answer.Steps)
		if a.Answer.Status != 200 {
			fmt.Fprintf(out, "  it is refused: %s\n", a.Answer.Reason)
		}
		arrivals(out, i, a.Next)
	}
}

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func steps(out *bytes.Buffer, i *inspect.Inspection, list []why.Step) {
	const most = 10
	for _, s := range list {
		fmt.Fprintf(out, "  %s %s", s.What, s.Name)
		if s.Reason != "" {
			fmt.Fprintf(out, ": %s", s.Reason)
		}
		fmt.Fprintln(out)
		if from := i.Origin(s.Origin); from != "" {
			fmt.Fprintf(out, "    by %s\n", from)
		}
		for _, d := range s.Details {
			fmt.Fprintf(out, "    %s\n", d)
		}
		for n, l := range s.Lost {
			if n == most {
				fmt.Fprintf(out, "    and %d more not\n", len(s.Lost)-n)
				break
			}
			fmt.Fprintf(out, "    not %s: %s", l.Name, l.Reason)
			if from := i.Origin(l.Origin); from != "" {
				fmt.Fprintf(out, ", by %s", from)
			}
			fmt.Fprintln(out)
		}
	}
}

// printWayJSON writes the way of a request for a program, with the origin of each step.
func printWayJSON(w io.Writer, i *inspect.Inspection, _ inspect.Query, way *inspect.Way) error {
	named(i, way.Outbound)
	var each func([]inspect.Arrival)
	each = func(list []inspect.Arrival) {
		for _, a := range list {
			named(i, a.Answer)
			each(a.Next)
		}
	}
	each(way.Arrivals)
	text, err := json.MarshalIndent(way, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// named writes into an answer what its decisions come from.
func named(i *inspect.Inspection, a *why.Answer) {
	if a == nil {
		return
	}
	for n := range a.Steps {
		a.Steps[n].From = i.Origin(a.Steps[n].Origin)
		for m := range a.Steps[n].Lost {
			a.Steps[n].Lost[m].From = i.Origin(a.Steps[n].Lost[m].Origin)
		}
	}
}
