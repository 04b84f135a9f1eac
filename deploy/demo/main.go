package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	// The inner program has already printed its error.
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	os.Exit(1)
}

// options are the flags of the user.
type options struct {
	stay        bool
	gatewayOnly bool
	sample      string
	requests    int
	envoy       string
	pilot       string
	agent       string
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.BoolVar(&o.stay, "stay", false, "stay up until Ctrl-C")
	f.BoolVar(&o.gatewayOnly, "gateway-only", false, "run the gateway alone on loopback, without namespaces")
	f.StringVar(&o.sample, "sample", envOr("SAMPLE", samples.Bookinfo),
		"what to run: "+samples.Bookinfo+" or "+samples.GatewayAPI+" (environment: SAMPLE)")
	f.IntVar(&o.requests, "requests", 500, "requests to send before and after the change")
	f.StringVar(&o.envoy, "envoy", envOr("ENVOY", ".tools/envoy"), "Envoy binary (environment: ENVOY)")
	f.StringVar(&o.pilot, "pilot-discovery", envOr("PILOT_DISCOVERY", "bin/pilot-discovery"),
		"control plane binary (environment: PILOT_DISCOVERY)")
	f.StringVar(&o.agent, "pilot-agent", "", "agent binary; empty: the one beside the control plane")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.sample != samples.Bookinfo && o.sample != samples.GatewayAPI {
		return o, fmt.Errorf("there is no sample %q: write %s or %s", o.sample, samples.Bookinfo, samples.GatewayAPI)
	}
	if o.agent == "" {
		o.agent = filepath.Join(filepath.Dir(o.pilot), "pilot-agent")
	}
	for _, binary := range []*string{&o.envoy, &o.pilot, &o.agent} {
		if _, err := os.Stat(*binary); err != nil {
			return o, fmt.Errorf("%w: run it by `make demo` or `make run`, which get what it needs", err)
		}
		abs, err := filepath.Abs(*binary)
		if err != nil {
			return o, err
		}
		*binary = abs
	}
	return o, nil
}

func envOr(key, otherwise string) string {
	if v := os.Getenv(key); v != "" {
		return v
	}
	return otherwise
}

// run runs twice: outside, and again inside the namespaces.
func run(ctx context.Context) error {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case pods.Inside():
		return inside(ctx, o)
	case o.gatewayOnly:
		return onLoopback(ctx, o)
	}
	err = enter(ctx, o)
	if errors.Is(err, pods.ErrForbidden) {
		fmt.Printf("%v.\nSo this is the gateway alone, on loopback, with plain servers behind it and no sidecars.\n\n", err)
		return onLoopback(ctx, o)
	}
	return err
}

// relays is how many listeners lead into the namespaces: to the gateway, to its HTTPS port, and to the debug pages.
const relays = 3

// enter opens the listeners for the user's shell, and runs the program inside the namespaces.
func enter(ctx context.Context, o options) error {
	var listeners []*net.TCPListener
	if o.stay {
		for range relays {
			l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return fmt.Errorf("listen on loopback: %w", err)
			}
			defer l.Close()
			listeners = append(listeners, l)
		}
	}
	err := pods.Enter(ctx, pods.EnterOptions{Args: os.Args[1:], Listeners: listeners})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func inside(ctx context.Context, o options) error {
	network, err := pods.NewNetwork(netip.MustParsePrefix("10.20.0.0/16"))
	if err != nil {
		pods.Refuse(err)
	}
	s := namespaces(network, o.sample)
	if o.stay {
		relayed, err := pods.Listeners()
		if err != nil {
			return err
		}
		s.gatewayRelay, s.secureRelay, s.debugRelay = relayed[0], relayed[1], relayed[2]
	}
	return tour(ctx, o, s)
}

func onLoopback(ctx context.Context, o options) error {
	s, err := loopback(o.sample)
	if err != nil {
		return err
	}
	return tour(ctx, o, s)
}
