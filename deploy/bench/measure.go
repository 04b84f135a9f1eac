package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/bench/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// point is one setting at which a workload is measured: a section of the results.
type point struct {
	workload string
	services int
	proxies  int  // none of workloads without a fleet
	mode     mode // likewise
}

// bench is one call of the command.
type bench struct {
	options
	dir        string // of logs
	cpu        cores
	cluster    *cluster.Cluster
	clients    *world.Clients
	contenders []contender
	results    *results
	log        *slog.Logger
}

// measure runs everything that the options ask for. Results are written after each setting of the world, so that a failure loses little.
func measure(ctx context.Context, root string, o options, log *slog.Logger) (err error) {
	b := &bench{options: o, log: log}
	if b.dir, err = os.MkdirTemp("", "istiod-lite-bench-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w (logs are in %s)", err, b.dir)
			return
		}
		_ = os.RemoveAll(b.dir)
	}()
	if b.contenders, err = contenders(ctx, root, b.dir, o); err != nil {
		return err
	}
	if b.cpu, err = shareCores(); err != nil {
		return err
	}
	if b.results, err = newResults(ctx, b.contenders); err != nil {
		return err
	}
	if err := b.startCluster(ctx); err != nil {
		return err
	}
	defer b.cluster.Stop()
	if b.clients, err = world.NewClients(b.cluster.Admin().Config()); err != nil {
		return err
	}
	if err := b.cluster.InstallCRDs(ctx, filepath.Join(root, "charts", "base", "files", "crds")); err != nil {
		return err
	}
	for _, n := range o.services {
		if err := b.inWorld(ctx, world.Of(n)); err != nil {
			return err
		}
		if err := b.results.write(o.out); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) startCluster(ctx context.Context) (err error) {
	dir := filepath.Join(b.dir, "cluster")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	// Pods without ServiceAccounts that exist: nobody here asks for their tokens.
	b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir, APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"}})
	return err
}

// inWorld grows the world and measures in it, the contenders in turn, round after round.
func (b *bench) inWorld(ctx context.Context, w world.World) error {
	begin := time.Now()
	if err := b.clients.Seed(ctx, w, 16, func(done int) { b.log.Info("the world grows", "services", done, "of", w.Services) }); err != nil {
		return err
	}
	b.log.Info("the world is there", "services", w.Services, "pods", w.Services*w.Pods, "took", time.Since(begin).Round(time.Second).String())
	if err := b.cpu.confine(); err != nil { // not before: all cores are good for making a world
		return err
	}
	for _, c := range b.contenders {
		if err := b.warm(ctx, c); err != nil {
			return err
		}
	}
	for round := range b.rounds {
		for _, c := range b.contenders {
			if err := b.round(ctx, w, round, c); err != nil {
				return fmt.Errorf("%s, round %d: %w", c.title, round+1, err)
			}
		}
	}
	return nil
}

// warm runs a contender once: its file is then in memory, and what it writes into a new cluster, an authority for instance, is there.
func (b *bench) warm(ctx context.Context, c contender) error {
	s, err := start(ctx, c, b.cpu, b.cluster.Kubeconfig(), b.dir, b.rest)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err = s.settle(ctx)
	return err
}

// round runs all workloads on one contender: those that need a fleet on one server for each number of proxies and each mode, the others on one of their own.
func (b *bench) round(ctx context.Context, w world.World, round int, c contender) error {
	var onFleet []workload
	for _, l := range b.workloads {
		if l.onFleet() {
			onFleet = append(onFleet, l)
			continue
		}
		if err := b.session(ctx, session{world: w, mode: delta}, round, c, []workload{l}); err != nil {
			return err
		}
	}
	if len(onFleet) == 0 {
		return nil
	}
	if onFleet[0].name() != (connects{}).name() {
		onFleet = append([]workload{connects{}}, onFleet...) // which connects the fleet for the others
	}
	for _, m := range b.modes {
		for _, n := range b.proxies {
			if err := b.session(ctx, session{world: w, mode: m, proxies: n}, round, c, onFleet); err != nil {
				return err
			}
		}
	}
	return nil
}

// session runs workloads on a server of their own.
func (b *bench) session(ctx context.Context, s session, round int, c contender, all []workload) (err error) {
	if s.server, err = start(ctx, c, b.cpu, b.cluster.Kubeconfig(), b.dir, b.rest); err != nil {
		return err
	}
	defer s.stop()
	s.length, s.clients = b.length, b.clients
	s.connect = func(proxies int, retry time.Duration) (*load.Fleet, error) { // of the session, not of one workload's time
		return load.Start(ctx, load.Options{
			Address: s.grpc, Proxies: proxies, Identity: identity(s.world), StateOfTheWorld: s.mode == stateOfTheWorld, Retry: retry, Logger: b.log.With("server", c.name),
		})
	}
	defer func() {
		if s.fleet != nil {
			s.fleet.Stop()
		}
	}()
	for _, l := range all {
		f, err := b.run(ctx, &s, l, round)
		if err != nil {
			return fmt.Errorf("%s: %w; %s", l.name(), err, s.tail())
		}
		at := point{workload: l.name(), services: s.world.Services, proxies: s.proxies}
		if l.onFleet() {
			at.mode = s.mode
		}
		b.results.add(at, l, c.name, f)
		b.log.Info("measured", "workload", l.name(), "server", c.title, "round", round+1, "mode", string(at.mode), "proxies", s.proxies, "figures", f.String())
	}
	return nil
}

// run runs one workload, with profiles if they are wanted.
func (b *bench) run(ctx context.Context, s *session, l workload, round int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience+s.length)
	defer cancel()
	if b.profiles == "" {
		return l.run(ctx, s)
	}
	file := filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%d-services-%d-proxies-%s-%d", l.name(), s.name, s.world.Services, s.proxies, s.mode, round+1))
	profiled := make(chan error, 1)
	go func() { profiled <- s.profileCPU(ctx, file+".cpu.pb.gz", l.onFleet(), s.length) }()
	f, err := l.run(ctx, s)
	return f, errors.Join(err, <-profiled, s.fetch(ctx, "/debug/pprof/heap?gc=1", file+".heap.pb.gz"))
}
