package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// contender is a control plane that is measured.
type contender struct {
	name   string // of the list below
	title  string
	binary string
	args   []string // before those that all get
	env    []string
	// foreign limits are not of this tree, speak delta alone, and need no feeder of their own.
	foreign bool
	// feeder is what a limit copies, another one of the same list.
	feeder *contender
}

const (
	lite         = "lite"
	istioDefault = "default"
	istioTuned   = "tuned"
	limitWhole   = "limit"
	limitSplit   = "limit-vhds"
)

// isLimit is true of their feeders too.
func (c contender) isLimit() bool { return strings.HasPrefix(c.name, limitWhole) }

func (c contender) isIstiod() bool { return c.name == istioDefault || c.name == istioTuned }

// does reports whether a contender takes part in a workload.
func (c contender) does(l workload, m mode) bool {
	n := l.needs()
	switch {
	case m != delta && n.delta:
		return false
	case c.isLimit():
		return n.limit && (m == delta || c.name == limitWhole && !c.foreign)
	default:
		return true
	}
}

// findAll returns an error for any missing binary, of the environment or of the cluster, before anything is built or
// started.
func findAll() (cluster.Binaries, error) {
	for _, variable := range []string{"ISTIOD", "PILOT_DISCOVERY", "MESH"} {
		path := os.Getenv(variable)
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err != nil {
			return cluster.Binaries{}, fmt.Errorf("%s of the environment: %w", variable, err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			return cluster.Binaries{}, fmt.Errorf("%s of the environment: %s is no program", variable, path)
		}
	}
	return cluster.Find()
}

// choose returns the contenders that are wanted, without their binaries.
func choose(o options) ([]contender, error) {
	// What istiod-lite does not do, or would do with a Lease of its own, istiod need not do either.
	common := []string{"POD_NAME=istiod-0", "POD_NAMESPACE=istio-system", "ENABLE_LEADER_ELECTION=false", "INJECT_ENABLED=false"}
	all := []contender{
		{name: istioDefault, title: "istiod", env: common},
		{name: istioTuned, title: "istiod, tuned",
			env: append(slices.Clone(common), "PILOT_DEBOUNCE_AFTER=10ms", "PILOT_MAX_REQUESTS_PER_SECOND=100000", "PILOT_PUSH_THROTTLE=200")},
		{name: lite, title: "istiod-lite", env: append(slices.Clone(common), o.env...)},
		{name: limitWhole, title: "limit", env: common},
		{name: limitSplit, title: "limit, VHDS", env: common, args: []string{"-vhds"}},
	}
	wanted := all
	if o.only != "" {
		only := strings.Split(o.only, ",")
		for _, name := range only {
			if !slices.ContainsFunc(all, func(c contender) bool { return c.name == name }) {
				return nil, fmt.Errorf("there is no contender %q: name some of default, tuned, lite, limit and limit-vhds", name)
			}
		}
		wanted = slices.DeleteFunc(all, func(c contender) bool { return !slices.Contains(only, c.name) })
	}
	return wanted, feed(wanted)
}

// build finds the binaries of contenders, or builds them, istiod into .tools and the others into a folder, which is
// their home.
func build(ctx context.Context, root, dir string, all []contender) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	for i := range all {
		var err error
		c := &all[i]
		c.env = append(slices.Clone(c.env), "HOME="+dir)
		switch {
		case c.name == lite:
			c.binary, err = findLite(ctx, dir)
		case c.isIstiod():
			c.binary, err = findIstiod(ctx, root)
		default:
			err = c.findLimit(ctx, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// feed connects each limit to a server that it copies: the tuned istiod if that is measured too, else another
// contender.
func feed(all []contender) error {
	var best *contender
	for _, name := range []string{istioDefault, lite, istioTuned} {
		if i := slices.IndexFunc(all, func(c contender) bool { return c.name == name }); i >= 0 {
			best = &all[i]
		}
	}
	for i := range all {
		if !all[i].isLimit() {
			continue
		}
		if best == nil {
			return errors.New("a limit copies another contender: name one more")
		}
		all[i].feeder = best
	}
	return nil
}

// findLimit takes the program that MESH names, whose command limit does the same, else builds that of this tree.
func (c *contender) findLimit(ctx context.Context, dir string) (err error) {
	if path := os.Getenv("MESH"); path != "" {
		c.foreign, c.args = true, append([]string{"limit"}, c.args...)
		c.binary, err = filepath.Abs(path)
		return err
	}
	c.binary = filepath.Join(dir, "limit")
	return binaries.Build(ctx, c.binary, "./deploy/bench/limit")
}

func findLite(ctx context.Context, dir string) (string, error) {
	if path := os.Getenv("PILOT_DISCOVERY"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(dir, "pilot-discovery")
	return path, binaries.Build(ctx, path, "./cmd/pilot-discovery")
}

// findIstiod returns the binary that ISTIOD names, else the one in .tools, which is built if it is not there.
func findIstiod(ctx context.Context, root string) (string, error) {
	if path := os.Getenv("ISTIOD"); path != "" {
		return filepath.Abs(path)
	}
	tools := filepath.Join(root, ".tools")
	cmd := exec.CommandContext(ctx, filepath.Join(root, "deploy", "tools", "istio.sh"), tools, "istiod")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build istiod: %w", err)
	}
	return filepath.Join(tools, "istiod"), nil
}
