package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
)

// mostProxies limits the number of proxies that one process simulates. Each takes a connection and a few hundred kB.
const mostProxies = 100_000

// flags are those of the load command.
type flags struct {
	address, protocol, output                   string
	proxies                                     int
	rate                                        float64
	duration, timeout                           time.Duration
	namespaces                                  []string
	labels                                      map[string]string
	pod, serviceAccount, ip                     string
	gateway, tls                                bool
	ca, certificate, key, serverName, tokenFile string
}

// Command returns the command pilot-discovery load.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "load",
		Short: "Connect simulated proxies to a control plane, and print what they are sent and how long it takes",
		Long: `Connect simulated Envoys to a control plane, this one or any other that serves ADS, for capacity
planning. Each subscribes and acknowledges as an Envoy 1.40 with Istio's extensions does, and
decodes very little, so that one core simulates thousands.

Once all have everything they stay for --duration. Pushes during this time are counted too, so
change something. In --namespace, --labels, --pod and --service-account, {i} is replaced by the
number of the proxy. A proxy gets what any pod of its namespace and labels would get. The pod need
not exist, but a server in a cluster waits a second for an unknown pod: name an existing one by
--pod to exclude this delay from the first responses.

For each type, "answers" is the number of answered requests and their latency, and "pushed" is the
number of unrequested responses to more than one proxy. "spread" is how much later than the first
one each of these proxies got it. The first response of a type after a reconnect is in neither,
because it may be an answer or a push.

The command fails if not all proxies have everything within --timeout, or are connected at the end.
Ctrl-C ends it early and prints the results so far: then it fails only if no proxy has everything.`,
		Example: `  pilot-discovery load --proxies 500 --duration 5m --namespace shop,billing --labels app=load
  pilot-discovery load --address istiod.istio-system.svc:15012 --tls --ca root-cert.pem --token-file /var/run/secrets/tokens/istio-token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	to := c.Flags()
	to.StringVar(&f.address, "address", "127.0.0.1:15010", "host and port of the control plane's ADS")
	to.StringVar(&f.protocol, "protocol", "delta", "delta, or sotw for state of the world")
	to.IntVar(&f.proxies, "proxies", 100, "number of proxies, at most 100000")
	to.Float64Var(&f.rate, "rate", 0, "proxies that connect in a second; all at once with 0")
	to.DurationVar(&f.duration, "duration", 30*time.Second, "time for which proxies stay connected once all have everything")
	to.DurationVar(&f.timeout, "timeout", 5*time.Minute, "time limit until all have everything")
	to.StringSliceVar(&f.namespaces, "namespace", []string{"default"}, "namespaces of the proxies, in turn, separated by commas")
	to.StringToStringVar(&f.labels, "labels", map[string]string{"app": "load"}, "labels of the proxies' pods")
	to.StringVar(&f.pod, "pod", "load-{i}", "name of a proxy's pod")
	to.StringVar(&f.serviceAccount, "service-account", "default", "service account of the proxies")
	to.StringVar(&f.ip, "ip", "198.18.0.1", "address of the first proxy; each further one has the next address")
	to.BoolVar(&f.gateway, "gateway", false, "the proxies are gateways, not sidecars")
	to.BoolVar(&f.tls, "tls", false, "connect with TLS, as to port 15012")
	to.StringVar(&f.ca, "ca", "", "file of CA certificates that verify the server's certificate; the system's by default")
	to.StringVar(&f.certificate, "cert", "", "file of the certificate that proxies present; needs --key")
	to.StringVar(&f.key, "key", "", "file of the private key of --cert")
	to.StringVar(&f.serverName, "server-name", "", "name in the server's certificate, if it differs from --address")
	to.StringVar(&f.tokenFile, "token-file", "", "file of the token that proxies present, read again for each stream")
	cli.OutputFlag(c, &f.output, "table", "json")
	cli.CompleteFlag(c, "protocol", "delta", "sotw")
	return c
}

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	begin := time.Now()
	fleet, err := load.Start(ctx, o)
	if err != nil {
		return err
	}
	defer fleet.Stop()
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	full := make(chan error, 1)
	safe.Go(o.Logger, "load", func() { full <- fleet.Wait(waiting) })
	var wall time.Duration
	var stay <-chan time.Time
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case err = <-full:
			wall = time.Since(begin)
			stay = time.After(f.duration)
			done = err != nil
		case <-stay:
			done = true
		case <-ctx.Done():
			done = true
		case <-tick.C:
			n := fleet.Counters()
			fmt.Fprintf(stderr, "%s: %d of %d proxies have everything, %d are connected, %s received, %d streams refused or ended%s\n",
				time.Since(begin).Round(time.Second), len(fleet.SyncTimes()), f.proxies, fleet.Live(), cli.Bytes(n.Bytes()), n.Refused, because(fleet))
		}
	}
	if wall == 0 { // the load ended before
		wall = time.Since(begin)
	}
	r, why := f.report(fleet, wall, time.Since(begin)), reason(fleet)
	if f.output == "json" {
		text, marshalErr := json.MarshalIndent(r, "", "  ")
		if marshalErr != nil {
			return marshalErr
		}
		_, marshalErr = fmt.Fprintln(stdout, string(text))
		if marshalErr != nil {
			return marshalErr
		}
	} else if printErr := r.print(stdout); printErr != nil {
		return printErr
	}
	switch {
	case ctx.Err() != nil && r.Full > 0: // interrupted after some proxies had everything: report what there is
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("ended before any proxy had everything: %w", why)
	case err != nil:
		return fmt.Errorf("%w: %w", err, why)
	case r.Live < f.proxies:
		return fmt.Errorf("%d of %d proxies are connected at the end: %w", r.Live, f.proxies, why)
	}
	return nil
}

// because returns why the last stream ended, or "".
func because(fleet *load.Fleet) string {
	if err := fleet.Failure(); err != nil {
		return ", the last: " + err.Error()
	}
	return ""
}

// reason returns why some proxies do not have everything, as far as it is known here.
func reason(fleet *load.Fleet) error {
	err := fleet.Failure()
	switch {
	case err == nil && fleet.Live() == 0:
		return errors.New("no stream could be opened, and none was refused: the server accepts connections without answering, or is not " +
			"reachable")
	case err == nil:
		return fmt.Errorf("%d streams are open, but the server has not sent all requested resources", fleet.Live())
	case load.NotGRPC(err):
		return fmt.Errorf("the last stream ended: %w: is this the gRPC port, and the one with --tls or without?", err)
	default:
		return fmt.Errorf("the last stream ended: %w", err)
	}
}

func (f *flags) options() (o load.Options, err error) {
	first, err := netip.ParseAddr(f.ip)
	switch {
	case err != nil:
		return o, fmt.Errorf("--ip=%s: write an address, for example 198.18.0.1", f.ip)
	case !hostAndPort(f.address):
		return o, fmt.Errorf("--address=%s: write host and port, for example 127.0.0.1:15010", f.address)
	case f.protocol != "delta" && f.protocol != "sotw":
		return o, fmt.Errorf("--protocol=%s: write delta or sotw", f.protocol)
	case f.proxies < 1 || f.proxies > mostProxies:
		return o, fmt.Errorf("--proxies=%d: write a number from 1 to %d", f.proxies, mostProxies)
	case f.duration < 0:
		return o, fmt.Errorf("--duration=%s: write how long proxies stay, or 0s", f.duration)
	case f.timeout <= 0:
		return o, fmt.Errorf("--timeout=%s: write a time above zero", f.timeout)
	case f.rate < 0 || math.IsNaN(f.rate):
		return o, fmt.Errorf("--rate=%v: write how many proxies connect in a second, or 0", f.rate)
	case len(f.namespaces) == 0, slices.Contains(f.namespaces, ""):
		return o, fmt.Errorf("--namespace=%s: write one or more, with a comma between two", strings.Join(f.namespaces, ","))
	case !f.tls && f.ca+f.certificate+f.key+f.serverName+f.tokenFile != "":
		return o, errors.New("--ca, --cert, --key, --server-name and --token-file go with --tls")
	case (f.certificate == "") != (f.key == ""):
		return o, errors.New("--cert and --key go together")
	}
	addresses := make([]string, f.proxies)
	for i := range addresses {
		if !first.IsValid() {
			return o, fmt.Errorf("--ip=%s: there are not %d addresses after it", f.ip, f.proxies)
		}
		addresses[i] = first.String()
		first = first.Next()
	}
	o = load.Options{
		Address: f.address, Proxies: f.proxies, Rate: f.rate, StateOfTheWorld: f.protocol == "sotw", Logger: slog.New(slog.DiscardHandler),
		Identity: func(i int) load.Identity {
			number := strconv.Itoa(i)
			fill := func(text string) string { return strings.ReplaceAll(text, "{i}", number) }
			labels := make(map[string]string, len(f.labels))
			for k, v := range f.labels {
				labels[k] = fill(v)
			}
			pod := fill(f.pod)
			return load.Identity{
				Gateway: f.gateway, Pod: pod, Namespace: fill(f.namespaces[i%len(f.namespaces)]), IP: addresses[i], Workload: pod,
				ServiceAccount: fill(f.serviceAccount), Labels: labels,
			}
		},
	}
	if f.tls {
		err = f.secure(&o)
	}
	return o, err
}

func hostAndPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

func (f *flags) secure(o *load.Options) error {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(f.address) // the address has a port
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("read --ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if err := armor.AddRoots(c.RootCAs, text); err != nil {
			return fmt.Errorf("--ca=%s: %w", f.ca, err)
		}
	}
	if f.certificate != "" {
		own, err := tls.LoadX509KeyPair(f.certificate, f.key)
		if err != nil {
			return fmt.Errorf("read --cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	o.Credentials = credentials.NewTLS(c)
	if f.tokenFile != "" {
		o.PerRPC = token(f.tokenFile)
		if _, err := o.PerRPC.GetRequestMetadata(context.Background()); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	return nil
}

// token is a file with a bearer token, which may be renewed at any time.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(string(t))
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(text))}, nil
}

func (token) RequireTransportSecurity() bool { return true }

// Report is the result of a load. Times are in milliseconds.
type Report struct {
	Proxies  int          `json:"proxies"`
	Full     int          `json:"proxiesWithEverything"` // number of proxies that had everything at some time
	Live     int          `json:"proxiesConnected"`      // number of proxies connected at the end
	Protocol string       `json:"protocol"`
	WallMS   float64      `json:"wallMs"` // time until all proxies had everything, or until the load ended without that
	P50MS    float64      `json:"connectP50Ms"`
	P99MS    float64      `json:"connectP99Ms"`
	TotalMS  float64      `json:"totalMs"`
	Bytes    int64        `json:"bytes"`
	Refused  int64        `json:"refusedOrEndedStreams"`
	Types    []loadOfType `json:"types"`
}

type loadOfType struct {
	Type      string    `json:"type"`
	Responses int64     `json:"responses"`
	Resources int64     `json:"resources"`
	Bytes     int64     `json:"bytes"`
	Answer    loadTimes `json:"answer"`
	Spread    loadTimes `json:"spread"`
}

type loadTimes struct {
	Count int64   `json:"count"`
	P50MS float64 `json:"p50Ms"`
	P99MS float64 `json:"p99Ms"`
}

func (f *flags) report(fleet *load.Fleet, wall, total time.Duration) Report {
	n, times := fleet.Counters(), fleet.SyncTimes()
	r := Report{Proxies: f.proxies, Full: len(times), Live: fleet.Live(), Protocol: f.protocol, WallMS: milliseconds(wall),
		TotalMS: milliseconds(total), Bytes: n.Bytes(), Refused: n.Refused}
	if len(times) > 0 {
		r.P50MS, r.P99MS = milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100])
	}
	sum := func(t load.Times) loadTimes {
		return loadTimes{t.Count(), milliseconds(t.Percentile(0.5)), milliseconds(t.Percentile(0.99))}
	}
	for _, t := range load.Types() {
		if c := n.Types[t]; c.Responses > 0 {
			r.Types = append(r.Types, loadOfType{t.String(), c.Responses, c.Resources, c.Bytes, sum(fleet.Answers(t)), sum(fleet.Spread(t))})
		}
	}
	return r
}

func (r Report) print(to io.Writer) error {
	times := ""
	if r.Full == r.Proxies {
		times = fmt.Sprintf(": all after %.0f ms, p50 %.0f ms, p99 %.0f ms", r.WallMS, r.P50MS, r.P99MS)
	}
	if _, err := fmt.Fprintf(to, "%d of %d proxies have everything (%s)%s; %d are connected at the end. %s received in %.0f s, %s a "+
		"proxy. %d streams refused or ended.\n\n",
		r.Full, r.Proxies, r.Protocol, times, r.Live, cli.Bytes(r.Bytes), r.TotalMS/1000, cli.Bytes(r.Bytes/int64(r.Proxies)),
		r.Refused); err != nil {
		return err
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "type\tresponses\tresources\treceived\tanswers\tp50 ms\tp99 ms\tpushed\tspread p50 ms\tp99 ms\t")
	for _, t := range r.Types {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%d\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t\n",
			t.Type, t.Responses, t.Resources, cli.Bytes(t.Bytes), t.Answer.Count, t.Answer.P50MS, t.Answer.P99MS, t.Spread.Count,
			t.Spread.P50MS, t.Spread.P99MS)
	}
	return table.Flush()
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
