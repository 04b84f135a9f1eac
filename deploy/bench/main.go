package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// options say what to measure.
type options struct {
	workloads []workload
	services  []int // ascending; one world is grown into the next
	proxies   []int
	modes     []mode
	rounds    int
	growth    bool  // measure and draw how costs grow
	idle      []int // numbers of proxies of W8, ascending
	routes    int   // of W5b and W5c
	// length is how long workloads make changes. 0 means each workload's own length.
	length time.Duration
	// rest is how long a server must be idle to be at rest.
	rest time.Duration
	only string // names of contenders, separated by commas; empty means all
	// env are settings of istiod-lite to try.
	env []string
	out string // the file of the results
	// profiles is the folder for profiles of the servers, which cost CPU. Empty means no profiles.
	profiles string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return err
	}
	o := options{out: filepath.Join(root, "deploy", "bench", "RESULTS.md")}
	w := flag.String("w", "", "workloads, with commas between; all without it")
	services := flag.String("services", "1000", "numbers of services, with commas between")
	proxies := flag.String("proxies", "300", "numbers of proxies, with commas between")
	modes := flag.String("modes", "delta,sotw", "protocols, with commas between")
	idle := flag.String("idle", "0,250,500,1000", "numbers of idle proxies for W8, with commas between")
	flag.IntVar(&o.routes, "routes", 5000, "routes of the gateway of W5b and W5c")
	flag.BoolVar(&o.growth, "growth", false,
		"measure W1 to W5 in delta at 250, 1000 and 4000 services with 300 proxies, and at 100, 300 and 1000 proxies with 1000 services, "+
			"unless told otherwise")
	plots := flag.String("plots", "", "draw plots of what RESULTS.md holds into this folder, and measure nothing")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each is measured")
	flag.DurationVar(&o.length, "length", 0, "how long changes go on in each workload that makes them; a workload's own length without it")
	flag.DurationVar(&o.rest, "rest", 2*time.Second, "how long a server has to be without work to count as being at rest")
	flag.StringVar(&o.only, "only", "", "contenders, with commas between: default, tuned, lite, limit, limit-vhds; all without it")
	flag.StringVar(&o.out, "out", o.out, "file for the results")
	flag.StringVar(&o.profiles, "profiles", "",
		"folder for CPU and heap profiles of the servers, which themselves take time and memory; none without it")
	env := flag.String("env", "", "environment variables of istiod-lite, as NAME=VALUE with commas between, GOGC=50 for instance")
	verbose := flag.Bool("v", false, "tell more")
	flag.Parse()
	if *env != "" {
		o.env = strings.Split(*env, ",")
	}
	if *plots != "" {
		if _, err := os.Stat(o.out); err != nil {
			return fmt.Errorf("read results: %w", err)
		}
		any, err := drawFile(o.out, *plots)
		if err == nil && !any {
			err = fmt.Errorf("%s holds no workload in several sizes, so there is nothing to draw: -growth measures them", o.out)
		}
		return err
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag: workloads are named by -w", flag.Arg(0))
	}
	if given["length"] && o.length <= 0 || o.rest <= 0 {
		return errors.New("length and rest are times above zero")
	}
	if o.growth {
		for name, grown := range map[string]struct {
			to    *string
			value string
		}{"w": {w, "W1,W2a,W3,W4,W5"}, "services": {services, "250,1000,4000"}, "proxies": {proxies, "100,300,1000"}, "modes": {modes, "delta"}} {
			if !given[name] {
				*grown.to = grown.value
			}
		}
	}
	if *w == "" {
		var all []string
		for _, l := range workloads() {
			all = append(all, l.name())
		}
		*w = strings.Join(all, ",")
	}
	o.services, o.proxies, o.idle = numbers(*services), numbers(*proxies), numbers(strings.TrimPrefix(*idle, "0,"))
	if strings.HasPrefix(*idle, "0,") {
		o.idle = append([]int{0}, o.idle...)
	}
	if len(o.idle) < 2 || o.routes < 1 {
		return errors.New("idle are at least two numbers of proxies, and there is at least one route")
	}
	if o.services == nil || o.proxies == nil || o.rounds < 1 {
		return errors.New("services, proxies and rounds are numbers above zero")
	}
	if o.workloads, err = pick(strings.Split(*w, ",")); err != nil {
		return err
	}
	if o.modes, err = pickModes(strings.Split(*modes, ",")); err != nil {
		return err
	}
	why := o.trial(given)
	if why != "" && !given["out"] {
		o.out = filepath.Join(root, "bin", "RESULTS.md")
		fmt.Fprintf(os.Stderr, "This is a trial, for %s: results go to %s, or where -out says.\n", why, o.out)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	debug.SetGCPercent(400) // the garbage of the clients must not delay the servers
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return measure(ctx, root, o, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}

// trial returns the reason why the figures cannot be compared with full measurements, or an empty string.
func (o *options) trial(given map[string]bool) string {
	for _, name := range []string{"only", "env", "profiles", "rest", "routes", "idle"} {
		if given[name] {
			return "-" + name + " is given"
		}
	}
	for _, w := range o.workloads {
		if own := w.needs().length; o.length != 0 && own != 0 && o.length != own {
			return fmt.Sprintf("%s takes %s", w.name(), own)
		}
	}
	if os.Getenv("MESH") != "" {
		return "MESH names another limit"
	}
	return ""
}

// numbers parses positive numbers, ascending. It returns nil if the list is invalid.
func numbers(list string) []int {
	var out []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// list formats numbers as text.
func list(all []int) string {
	text := ""
	for i, n := range all {
		switch {
		case i == 0:
		case i == len(all)-1:
			text += " and "
		default:
			text += ", "
		}
		text += strconv.Itoa(n)
	}
	return text
}
