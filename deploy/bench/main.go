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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// options are what is measured.
type options struct {
	workloads []workload
	services  []int // ascending: one world is grown into the next
	proxies   []int
	modes     []mode
	rounds    int
	// length is how long changes go on in each of the workloads that make them.
	length time.Duration
	// rest is how long a server has to be without work to count as being at rest.
	rest time.Duration
	only string // names of contenders, with commas between; all without it
	// env are settings of istiod-lite, to try them out.
	env []string
	out string // RESULTS.md
	// profiles is a folder for profiles of the servers, which cost some of what is measured; none without it.
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
	w := flag.String("w", "W1,W2a,W3,W4,W5", "workloads, with commas between")
	services := flag.String("services", "1000", "numbers of services, with commas between")
	proxies := flag.String("proxies", "300", "numbers of proxies, with commas between")
	modes := flag.String("modes", "delta,sotw", "protocols, with commas between")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&o.length, "length", time.Minute, "how long changes go on in each workload that makes them")
	flag.DurationVar(&o.rest, "rest", 2*time.Second, "how long a server has to be without work to count as being at rest")
	flag.StringVar(&o.only, "only", "", "contenders, with commas between: default, tuned, lite; all without it")
	flag.StringVar(&o.out, "out", o.out, "file for the results")
	flag.StringVar(&o.profiles, "profiles", "", "folder for CPU and heap profiles of the servers, which themselves take time and memory; none without it")
	env := flag.String("env", "", "environment variables of istiod-lite, as NAME=VALUE with commas between, GOGC=50 for instance")
	verbose := flag.Bool("v", false, "tell more")
	flag.Parse()
	if *env != "" {
		o.env = strings.Split(*env, ",")
	}
	o.services, o.proxies = numbers(*services), numbers(*proxies)
	if o.services == nil || o.proxies == nil || o.rounds < 1 {
		return errors.New("services, proxies and rounds are numbers above zero")
	}
	if o.workloads, err = pick(strings.Split(*w, ",")); err != nil {
		return err
	}
	if o.modes, err = pickModes(strings.Split(*modes, ",")); err != nil {
		return err
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return measure(ctx, root, o, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}

// numbers reads numbers above zero, ascending, or gives nil.
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
