package why

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/analyze"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// arrow is an optional argument between the source and the target.
const arrow = "→"

// WithoutArrow removes the arrow from the arguments of why, because the flag parser takes it for a flag.
func WithoutArrow(args []string) []string {
	if at := slices.Index(args, "->"); at > 0 && args[0] == "why" {
		args = slices.Clone(args)
		args[at] = arrow
	}
	return args
}

type flags struct {
	analyze.Flags
	headers, claims []string
	jwt, address    string
	watch           bool
	query           inspect.Query
	unreadable      input.Unreadable
}

// Command returns the command pilot-discovery why.
func Command(e *env.Env) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "why SOURCE HOST:PORT",
		Short: "Trace a request: each decision, its object and line, and why alternatives lost",
		Long: `Trace a request from the proxy SOURCE, NAME.NAMESPACE, to the application that answers, with the
reason for each decision. SOURCE is a Pod, a WorkloadEntry of a virtual machine or the WorkloadGroup
by which it will register, or an application that uses xDS without a proxy, as gRPC does. PORT is a
number, or the name of a port in the Service. It may be left out for a Service with a single port.

It prints for each decision the object that it comes from, and why alternatives lost: the listener
and its filter chain, the virtual host, the route, the cluster with its endpoints and their TLS, and
on the receiving side the filter chain, the PeerAuthentications and the AuthorizationPolicies that
allow or deny the request.

It evaluates what both proxies are sent, as Envoy would, and whether the Secrets for TLS exist: from
a directory (--configDir), from the cluster that kubectl would use, which is only read, or from a
running server (--address), which knows the connected proxies. With --sent it uses what the server
has sent them, otherwise what the server would send them now.

The token of the request is in the headers, or --jwt TOKEN, or has the claims of --claim wherever
policies look for it. Its signature is not verified: it is taken to be valid if its issuer, its
audience and its times are right.

Policies see addresses. The address of the client that calls a gateway is the one of --from-address; a
header X-Forwarded-For is read as the proxies are told.

The answer may depend on parts that it does not evaluate, for example an external authorizer, a rate
limit or a Lua filter. It names them: the request reaches the application, if none of them prevents it.

With --log, the request is read from a line of an Envoy's access log: in Istio's text format or JSON, or
in the formats of the mesh (accessLogFormat and the extensionProviders). It says what the response
flags and details mean, and compares the answer in the line with what happens by the configuration as
it is now. SOURCE is the Pod whose log it is, or the caller; it and HOST:PORT are needed only if the
line does not tell them. LINE may also be the body of a response of Envoy, such as "no healthy
upstream", or response flags, such as UF,URX. With --address it also lists the changes that may be
the cause.

-o wide prints every alternative that lost, -o name prints the workloads that the request reaches.

The exit code is 0 if the request always reaches an application, 79 if it does not, if that depends on
something, or if the line of --log says that it did not, and 1 if the command fails.`,
		Example: `  pilot-discovery why productpage-1.bookinfo reviews:9080 --path /reviews/0 --configDir mesh
  pilot-discovery why productpage-1.bookinfo "->" http://reviews:9080/reviews/0 --header end-user=jason
  pilot-discovery why istio-ingress-0.istio-system shop.example.com:80 --claim groups=admin -o json
  pilot-discovery why productpage-1.bookinfo reviews:9080 --address 127.0.0.1:15014 --watch
  kubectl logs web-1 -c istio-proxy | tail -1 | pilot-discovery why --log -
  pilot-discovery why productpage-1.bookinfo reviews:9080 --log UF,URX`,
		Args: f.logArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringVar(&f.ConfigDir, "configDir", "", "directory of YAML that describes the mesh; the cluster by default")
	flags.StringVar(&f.address, "address", "", "ask the server with this --monitoringAddr, for example 127.0.0.1:15014")
	flags.BoolVar(&f.query.Sent, "sent", false, "with --address, use what the server has sent the proxies")
	flags.StringVar(&f.query.Log, "log", "", "line of an access log, response of Envoy or response flags to explain; - for "+
		"standard input")
	flags.StringVar(&f.query.Path, "path", "", "path of the request, with its query; / by default")
	flags.StringVar(&f.query.Method, "method", "", "method of the request: GET by default, POST for gRPC")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header of the request: NAME=VALUE; may be repeated")
	flags.StringArrayVar(&f.claims, "claim", nil, "claim of the request's token: NAME=VALUE, where VALUE is text, or JSON if it "+
		"begins with { or [; may be repeated")
	flags.StringVar(&f.jwt, "jwt", "", "the request's token, as a bearer token")
	flags.StringVar(&f.query.FromAddress, "from-address", "", "address of the client that calls, if SOURCE is a gateway; otherwise of SOURCE")
	flags.BoolVar(&f.query.TLS, "tls", false, "the application itself speaks TLS")
	flags.BoolVar(&f.query.Certificate, "certificate", false, "the client has a certificate that the gateway trusts")
	flags.BoolVar(&f.query.HTTP3, "http3", false, "the request comes by HTTP/3, to a gateway")
	cli.OutputFlag(c, &f.Output, cli.ListFormats()...)
	cli.WatchFlag(c, &f.watch)
	f.RegisterCluster(c, e)
	c.MarkFlagsMutuallyExclusive("configDir", "address")
	c.MarkFlagsMutuallyExclusive("claim", "jwt")
	cli.CompleteArgument(c, f.senders, f.targets)
	return c
}

func (f *flags) run(c *cobra.Command, args []string) error {
	color, err := cli.Painted(c, f.Env.Getenv)
	if err != nil {
		return err
	}
	if err := f.readLog(c); err != nil {
		return err
	}
	q, err := f.ask(args)
	if err != nil {
		return err
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error {
		q := q
		way, err := f.way(c.Context(), c, w, &q)
		if err != nil {
			return err
		}
		if err := f.print(w, q, way, color); err != nil {
			return err
		}
		if !way.Reached() {
			return cli.Exit(cli.Found)
		}
		return nil
	})
}

// ask returns the query of the flags and arguments.
func (f *flags) ask(args []string) (inspect.Query, error) {
	if len(args) == 3 {
		if args[1] != arrow {
			return inspect.Query{}, fmt.Errorf("%s: write SOURCE -> HOST:PORT", cli.Quoted(args[1]))
		}
		args = []string{args[0], args[2]}
	}
	source, q, err := "", inspect.Query{}, error(nil)
	if len(args) > 1 {
		if q, err = inspect.ParseTarget(args[1]); err != nil {
			return q, fmt.Errorf("%s: %w", cli.Quoted(args[1]), err)
		}
	}
	if len(args) > 0 {
		source = args[0]
		if _, _, err := cli.SplitName(source); err != nil {
			return q, fmt.Errorf("%s: %w", cli.Quoted(source), err)
		}
	}
	if f.query.Sent && f.address == "" {
		return q, errors.New("--sent: only a running server knows what it has sent: name it by --address")
	}
	q.Log = f.query.Log
	q.Source, q.Method, q.TLS, q.Sent, q.Now, q.Headers = source, f.query.Method, q.TLS ||
		f.query.TLS, f.query.Sent, time.Now(), map[string]string{}
	q.HTTP3, q.Certificate, q.FromAddress = f.query.HTTP3, f.query.Certificate, f.query.FromAddress
	if !q.ValidFromAddress() {
		return q, fmt.Errorf("--from-address=%s: write an IP address", cli.Quoted(q.FromAddress))
	}
	if f.query.Path != "" {
		q.Path = f.query.Path
	}
	if !q.ValidPath() {
		return q, fmt.Errorf("--path=%s: a path begins with /", cli.Quoted(q.Path))
	}
	for _, h := range f.headers {
		k, v, ok := strings.Cut(h, "=")
		if name, value, colon := strings.Cut(h, ": "); colon && (!ok || len(name) < len(k)) {
			k, v, ok = name, value, true
		}
		if !ok || k == "" {
			return q, fmt.Errorf("--header=%s: write NAME=VALUE", cli.Quoted(h))
		}
		q.AddHeader(strings.TrimSpace(k), v)
	}
	if f.jwt != "" {
		if q.Claims, q.TokenHeader, err = trace.ParseToken(f.jwt); err != nil {
			return q, fmt.Errorf("--jwt: %w", err)
		}
	}
	for _, text := range f.claims {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return q, fmt.Errorf("--claim=%s: write NAME=VALUE", cli.Quoted(text))
		}
		if q.Claims == nil {
			q.Claims = map[string]any{}
		}
		q.Claims[name] = value
		if slices.Contains([]string{"exp", "nbf", "iat"}, name) { // RFC 7519: a NumericDate
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return q, fmt.Errorf("--claim=%s: write seconds since 1970", cli.Quoted(text))
			}
			q.Claims[name] = seconds
		}
		if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
			var v any
			if err := json.Unmarshal([]byte(value), &v); err != nil {
				return q, fmt.Errorf("--claim=%s: %w", cli.Quoted(text), err)
			}
			q.Claims[name] = v
		}
	}
	return q, nil
}

// way returns the trace of the request: the server's answer, or the result of reading the configuration.
func (f *flags) way(ctx context.Context, c *cobra.Command, w io.Writer, q *inspect.Query) (*inspect.Way, error) {
	if q.Log != "" && q.Source == "" && q.Host == "" {
		if way := inspect.Meaning(q.Log); way != nil {
			return way, nil
		}
	}
	if f.address != "" {
		way := &inspect.Way{}
		err := cli.Page(ctx, "", f.address, "/debug/why?"+q.Values().Encode(), "json", way)
		if answered := (*cli.StatusError)(nil); errors.As(err, &answered) {
			err = errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("%d %s: ", answered.Code, http.StatusText(answered.Code))))
			err = errors.New(strings.TrimPrefix(err.Error(), debug.ErrBadQuery.Error()+": "))
		}
		if err == nil && (way.Log == nil && way.Outbound == nil || way.Log != nil && way.Log.Entry == nil) {
			err = errors.New("the answer of the server is no trace of a request")
		}
		if q.Port == 0 {
			q.Port = way.Port
		}
		return way, err
	}
	o := ingest.Options{Revision: f.Revision, Limits: limits.Default()}
	if f.ConfigDir == "" {
		f.UseKube, f.Elsewhere = true, "a directory by --configDir, or a server by --address"
		if err := f.ReadCluster(c, &o, false); err != nil {
			return nil, err
		}
	}
	i, err := input.Read(c, f.World, o)
	if err != nil {
		return nil, f.TooLong(err)
	}
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	f.unreadable.Warn(c, i, w, f.watch, cli.Tabular(f.Output))
	way, err := i.Why(*q)
	if err == nil {
		q.Port = way.Port
	}
	return way, err
}

// senders completes SOURCE.
func (f *flags) senders(c *cobra.Command) []string {
	switch {
	case f.address != "":
		return cli.Connected(c, f.address)
	case f.ConfigDir == "":
		return f.Cluster.Names(c, "pods")
	}
	i, err := input.Read(c, f.World, ingest.Options{Limits: limits.Default()})
	if err != nil || i.Snapshot == nil {
		return nil
	}
	return i.Workloads()
}

// targets completes HOST:PORT.
func (f *flags) targets(c *cobra.Command) (list []string) {
	switch {
	case f.address != "":
		var services []struct {
			Hostname string `json:"hostname"`
			Ports    []struct {
				Port uint32 `json:"port"`
			} `json:"ports"`
		}
		cli.AskPage(c, f.address, "/debug/registryz", &services)
		for _, s := range services {
			for _, p := range s.Ports {
				list = append(list, fmt.Sprintf("%s:%d", s.Hostname, p.Port))
			}
		}
		return list
	case f.ConfigDir == "":
		return f.Cluster.Names(c, "services")
	}
	i, err := input.Read(c, f.World, ingest.Options{Limits: limits.Default()})
	if err != nil || i.Snapshot == nil {
		return nil
	}
	for s := range i.Snapshot.EachService {
		for _, p := range s.Ports {
			list = append(list, fmt.Sprintf("%s:%d", s.Host, p.Number))
		}
	}
	slices.Sort(list)
	return list
}

// print writes the trace of a request in the requested format.
func (f *flags) print(w io.Writer, q inspect.Query, way *inspect.Way, color cli.Painter) error {
	switch f.Output {
	case "json", "yaml":
		return cli.PrintValue(w, way, f.Output)
	}
	way, err := plain(way)
	if err != nil {
		return err
	}
	if f.Output == "name" {
		for _, name := range way.Reaches() {
			fmt.Fprintln(w, name)
		}
		return nil
	}
	if way.Log != nil {
		return printLog(w, q, way, f.Output == "wide", color)
	}
	return printWay(w, q, way, f.Output == "wide", color)
}

// plain returns a copy of a trace with plain strings. Strings from configuration and access logs may change the
// terminal or forge lines.
func plain(way *inspect.Way) (*inspect.Way, error) {
	text, err := json.Marshal(way)
	if err != nil {
		return nil, err
	}
	p := &inspect.Way{}
	return p, cli.Decode(text, "table", p)
}

// printWay writes the trace of a request for people.
func printWay(w io.Writer, q inspect.Query, way *inspect.Way, wide bool, color cli.Painter) error {
	var out bytes.Buffer
	request := "connects"
	if method := cmp.Or(q.Method, way.Method); method != "" {
		request = "sends " + method + " " + orSlash(q.Path)
	}
	out.WriteString(terminal.Plain(fmt.Sprintf("%s %s to %s:%d", q.Source, request, q.Host, q.Port)))
	if way.Service != "" {
		fmt.Fprintf(&out, ", which is %s", way.Service)
	}
	if way.Address != "" && way.Address != q.Host {
		fmt.Fprintf(&out, " at %s", way.Address)
	}
	fmt.Fprintln(&out)
	for _, note := range lists.Unique(way.Notes) {
		fmt.Fprintf(&out, "%s %s\n", color.Paint(cli.Amber, "!"), note)
	}
	p := wayPrinter{&out, wide, color}
	p.steps(way.Outbound.Steps)
	p.arrivals(way.Arrivals)
	fmt.Fprintln(&out)
	switch {
	case way.Status == 200 && way.Answered:
		fmt.Fprintf(&out, "%s: %s\n", color.Paint(cli.Amber, "It is answered with status 200, and reaches no application"), way.Reason)
	case way.Status == 200 && way.Outside:
		fmt.Fprintln(&out, color.Paint(cli.Amber, "It leaves the mesh")+": it is passed on to where the connection was meant to go, and "+
			"whether anything answers there is not known here.")
	case way.Status == 200 && len(way.Depends) == 0:
		fmt.Fprintln(&out, color.Paint(cli.Green, "It reaches the application."))
	case way.Status == 200:
		fmt.Fprintln(&out, color.Paint(cli.Amber, "It reaches the application, if none of these prevents it:"))
	case way.Status == 0:
		fmt.Fprintf(&out, "%s: %s\n", color.Paint(cli.Red, "The connection is closed"), way.Reason)
	default:
		fmt.Fprintf(&out, "%s: %s\n", color.Paint(cli.Red, fmt.Sprintf("It is answered with status %d", way.Status)), way.Reason)
	}
	if len(way.Depends) > 0 && (way.Status != 200 || way.Answered || way.Outside) {
		fmt.Fprintln(&out, "That is not certain:")
	}
	for _, on := range lists.Unique(way.Depends) {
		fmt.Fprintf(&out, "  %s\n", on)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// wayPrinter writes parts of a trace for people.
type wayPrinter struct {
	out   *bytes.Buffer
	wide  bool // whether to write every alternative
	color cli.Painter
}

// arrivals writes the trace of a request at each of its destinations.
func (p wayPrinter) arrivals(list []inspect.Arrival) {
	out := p.out
	for _, a := range list {
		if a.Answer == nil {
			if a.Pod == "" {
				fmt.Fprintf(out, "\nAt %s, which is no Pod of the mesh.\n", a.Endpoint)
			} else {
				fmt.Fprintf(out, "\nAt %s (%s), where no proxy takes the connection.\n", a.Pod, a.Endpoint)
			}
			p.others(a)
			if a.Failure != "" {
				fmt.Fprintf(out, "  %s: %s\n", p.color.Paint(cli.Red, "no connection succeeds"), a.Failure)
			}
			continue
		}
		fmt.Fprintf(out, "\nAt %s (%s)\n", a.Pod, a.Endpoint)
		p.others(a)
		switch {
		case a.Identity != "":
			fmt.Fprintf(out, "  who calls: %s\n", a.Identity)
		case a.Unknown:
			fmt.Fprintln(out, "  who calls: a client with a certificate of the mesh, whose identity is not known")
		default:
			fmt.Fprintln(out, "  who calls: a client without a certificate of the mesh")
		}
		if a.MTLS != "" {
			fmt.Fprintf(out, "  mutual TLS: %s", a.MTLS)
			if len(a.Origins) > 0 {
				fmt.Fprintf(out, ", by %s", strings.Join(a.Origins, "; "))
			}
			fmt.Fprintln(out)
		}
		p.steps(a.Answer.Steps)
		if a.Answer.Status != 200 {
			fmt.Fprintf(out, "  %s: %s\n", p.color.Paint(cli.Red, "it is refused"), a.Answer.Reason)
		}
		p.arrivals(a.Next)
	}
}

// others names the other endpoints that give the same answer.
func (p wayPrinter) others(a inspect.Arrival) {
	const most = 5
	list := a.Others
	if len(list) == 0 {
		return
	}
	text := strings.Join(list[:min(most, len(list))], ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	fmt.Fprintf(p.out, "  the same at %s\n", text)
}

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// steps writes steps. Lines that say the same are written once.
func (p wayPrinter) steps(list []trace.Step) {
	const most = 10
	out := p.out
	for _, s := range list {
		fmt.Fprintf(out, "  %s %s", s.What, s.Name)
		if s.Reason != "" {
			fmt.Fprintf(out, ": %s", s.Reason)
		}
		fmt.Fprintln(out)
		if s.From != "" {
			fmt.Fprintf(out, "    by %s\n", s.From)
		}
		for _, d := range lists.Unique(s.Details) {
			fmt.Fprintf(out, "    %s\n", d)
		}
		lost := lists.Unique(lists.Map(s.Lost, func(l trace.Lost) string {
			text := fmt.Sprintf("not %s: %s", l.Name, l.Reason)
			if l.From != "" {
				text += ", by " + l.From
			}
			return text
		}))
		for n, text := range lost {
			if n == most && !p.wide {
				fmt.Fprintf(out, "    and %d more not (-o wide)\n", len(lost)-n)
				break
			}
			fmt.Fprintf(out, "    %s\n", p.color.Paint(cli.Dim, text))
		}
	}
}
