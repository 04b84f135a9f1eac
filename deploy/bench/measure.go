package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// point is a setting in which a workload is measured. It has one section of the results.
type point struct {
	workload string
	services int
	proxies  int  // 0 for workloads without a fleet
	mode     mode // empty for workloads without a fleet
}

// bench is one call of the command.
type bench struct {
	options
	dir        string // for logs, and for files that are removed at the end
	cpu        cores
	cluster    *cluster.Cluster
	clients    *world.Clients
	contenders []contender
	templates  []byte // the ConfigMap, if a workload needs it
	results    *results
	launches   int
	failed     int // failed rounds
	log        *slog.Logger
}

// measure runs everything that the options ask for.
func measure(ctx context.Context, root string, o options, log *slog.Logger) (err error) {
	b := &bench{options: o, log: log}
	programs, err := findAll()
	if err != nil {
		return err
	}
	if b.contenders, err = choose(o); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return fmt.Errorf("make a folder for the results: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "istiod-lite-bench-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	built, data := filepath.Join(b.dir, "built"), filepath.Join(b.dir, "cluster")
	defer func() { // keep logs if something failed
		if _, started := os.Stat(data); err == nil || started != nil {
			_ = os.RemoveAll(b.dir)
			return
		}
		etcd, _ := filepath.Glob(filepath.Join(data, "etcd-*"))
		for _, path := range append(etcd, built) {
			_ = os.RemoveAll(path)
		}
		err = fmt.Errorf("%w (logs are in %s)", err, b.dir)
	}()
	if slices.ContainsFunc(o.workloads, func(l workload) bool { return l.needs().injection }) {
		if b.templates, err = findTemplates(ctx, b.dir); err != nil {
			return err
		}
	}
	if err := build(ctx, root, built, b.contenders); err != nil {
		return err
	}
	if b.cpu, err = shareCores(); err != nil {
		return err
	}
	b.results = newResults(ctx, programs, b.contenders, o)
	if err := b.startCluster(ctx, programs, data); err != nil {
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
		if err := b.inWorld(ctx, world.Sized(n)); err != nil {
			return err
		}
	}
	if o.growth {
		if _, err := drawFile(o.out, filepath.Join(filepath.Dir(o.out), plotFolder)); err != nil {
			return err
		}
	}
	if b.failed > 0 {
		return fmt.Errorf("%d rounds failed: the results name them", b.failed)
	}
	return nil
}

func (b *bench) startCluster(ctx context.Context, programs cluster.Binaries, dir string) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	// The ServiceAccounts of Pods do not exist, because no client here needs their tokens.
	b.cluster, err = cluster.Start(ctx,
		cluster.Options{Binaries: programs, Dir: dir, APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"}})
	return err
}

// seeders is how many objects are written in parallel.
const seeders = 16

// inWorld grows the world and measures in it: scene by scene, with all contenders in turn in each round. It writes the
// results after each scene.
func (b *bench) inWorld(ctx context.Context, w world.World) error {
	begin := time.Now()
	progress := func(done int) { b.log.Info("creating the world", "services", done, "of", w.Services) }
	if err := b.clients.Seed(ctx, w, seeders, progress); err != nil {
		return err
	}
	b.log.Info("created the world", "services", w.Services, "pods", w.Services*w.Pods, "took", time.Since(begin).Round(time.Second).String())
	if err := b.cpu.confine(); err != nil { // only now, because all cores help to create a world
		return err
	}
	for _, c := range b.contenders {
		if err := b.warm(ctx, c); err != nil && ctx.Err() == nil { // if it matters, the rounds fail with the reason
			b.log.Warn("a contender does not start", "server", c.title, "err", err)
		}
	}
	for _, at := range scenes() {
		here := slices.DeleteFunc(slices.Clone(b.workloads), func(l workload) bool { return l.needs().scene != at })
		if len(here) == 0 {
			continue
		}
		if err := b.set(ctx, at, w); err != nil {
			return err
		}
		err := b.inRounds(ctx, w, here)
		out := b.out
		// The run ended early. The results are kept beside the logs and replace no complete section.
		if err != nil {
			out = filepath.Join(b.dir, "RESULTS.md")
		}
		if len(b.results.tables) > 0 {
			err = errors.Join(err, b.results.write(out))
			b.log.Info("results written", "file", out)
		}
		if err != nil {
			return err
		}
		if err := b.clear(ctx, at, w); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) inRounds(ctx context.Context, w world.World, all []workload) error {
	for round := range b.rounds {
		for _, c := range b.contenders {
			if err := b.round(ctx, w, round, c, all); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) launch() launch {
	b.launches++
	return launch{cpu: b.cpu, kubeconfig: b.cluster.Kubeconfig(), dir: b.dir, number: b.launches, rest: b.rest}
}

// warm runs a contender once. Its file is then in memory, and objects that it creates in a new cluster, such as its
// authority, exist.
func (b *bench) warm(ctx context.Context, c contender) error {
	s, err := start(ctx, c, b.launch())
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

// round runs workloads on one contender. Workloads with a fleet share one server for each number of proxies and mode;
// each other workload gets its own server. It returns an error only when ctx ends; other failures are noted in the
// results.
func (b *bench) round(ctx context.Context, w world.World, round int, c contender, all []workload) error {
	for _, l := range all {
		if !l.needs().fleet && c.does(l, delta) {
			b.session(ctx, session{world: w, mode: delta}, round, c, []workload{l})
		}
	}
	for _, m := range b.modes {
		onFleet := slices.DeleteFunc(slices.Clone(all), func(l workload) bool { return !l.needs().fleet || !c.does(l, m) })
		for _, n := range b.proxies {
			if len(onFleet) > 0 && b.wanted(w.Services, n) {
				b.session(ctx, session{world: w, mode: m, proxies: n}, round, c, onFleet)
			}
		}
	}
	return ctx.Err()
}

// usualServices and usualProxies are the numbers that stay fixed while the other one grows.
const usualServices, usualProxies = 1000, 300

// wanted excludes points that lie on neither line of growth.
func (b *bench) wanted(services, proxies int) bool {
	return !b.growth || services == usualServices || proxies == usualProxies || !slices.Contains(b.services, usualServices) ||
		!slices.Contains(b.options.proxies, usualProxies)
}

// session runs workloads on one server until one fails.
func (b *bench) session(ctx context.Context, s session, round int, c contender, all []workload) {
	fail := func(l workload, err error) {
		if ctx.Err() == nil {
			b.failed++
			b.results.fail(s.point(l), l, c.title, round, err)
			b.log.Error("a round failed", "workload", l.name(), "server", c.title, "round", round+1, "mode", string(s.mode), "proxies", s.proxies,
				"err", err)
		}
	}
	s.options, s.clients, s.cpu = b.options, b.clients, b.cpu
	if all[0].needs().injection {
		c.env = append(slices.Clone(c.env), "INJECT_ENABLED=true") // the last value is used
	}
	var err error
	if s.server, err = start(ctx, c, b.launch()); err != nil {
		fail(all[0], err)
		return
	}
	defer s.stop()
	s.connect = func(o load.Options) (*load.Fleet, error) { // for the whole session, not for the time of one workload
		if o.Address == "" {
			o.Address = s.grpc
		}
		o.StateOfTheWorld, o.Logger = s.mode == stateOfTheWorld, b.log.With("server", c.name)
		if o.Identity == nil {
			o.Identity = identity(s.world, 0)
		}
		return load.Start(ctx, o)
	}
	defer func() {
		if s.fleet != nil {
			s.fleet.Stop()
		}
	}()
	for _, l := range all {
		begin := time.Now()
		f, err := b.run(ctx, &s, l, round)
		if err != nil {
			fail(l, fmt.Errorf("%w; %s", err, s.tail()))
			return
		}
		b.results.add(s.point(l), l, c.name, f)
		b.log.Info("measured", "workload", l.name(), "server", c.title, "round", round+1, "mode", string(s.mode), "proxies", s.proxies,
			"took", time.Since(begin).Round(100*time.Millisecond).String(), "figures", f.String())
	}
}

// point returns the setting in which a workload of this session is measured.
func (s *session) point(l workload) point {
	at := point{workload: l.name(), services: s.world.Services}
	if l.needs().fleet {
		at.proxies, at.mode = s.proxies, s.mode
	}
	return at
}

// run runs one workload, with profiles if they are wanted.
func (b *bench) run(ctx context.Context, s *session, l workload, round int) (figures, error) {
	if s.length = b.length; s.length == 0 {
		s.length = l.needs().length
	}
	ctx, cancel := context.WithTimeout(ctx, 3*timeout+s.length)
	defer cancel()
	if l.needs().fleet && !l.needs().connects {
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
	if b.profiles == "" || s.monitoring == "" {
		return l.run(ctx, s)
	}
	file := filepath.Join(b.profiles,
		fmt.Sprintf("%s-%s-%d-services-%d-proxies-%s-%d", l.name(), s.name, s.world.Services, s.proxies, s.mode, round+1))
	_, starts := l.(coldStart)
	profiled := make(chan error, 1)
	go func() { profiled <- s.profileCPU(ctx, file+".cpu.pb.gz", !starts, s.length) }()
	f, err := l.run(ctx, s)
	return f, errors.Join(err, <-profiled, s.fetch(ctx, "/debug/pprof/heap?gc=1", file+".heap.pb.gz"))
}
