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
	name   string // in the list of choose
	title  string
	binary string
	args   []string // before the arguments that all contenders get
	env    []string
	// foreign is true for a limit that is not built from this tree. It speaks only delta and needs no feeder.
	foreign bool
	// feeder is the contender that a limit copies.
	feeder *contender
}

const (
	lite         = "lite"
	istioDefault = "default"
	istioTuned   = "tuned"
	limitWhole   = "limit"
	limitSplit   = "limit-vhds"
)

// isLimit reports whether the contender is a limit or its feeder.
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

// findAll returns an error if a binary is missing, before anything is built or started.
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

// choose returns the wanted contenders, without their binaries.
func choose(o options) ([]contender, error) {
	// istiod is not measured with features that istiod-lite lacks, or that would need a Lease.
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

// build finds or builds the binaries of contenders: istiod in .tools, and the others in dir.
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

// feed connects each limit to a server that it copies: the tuned istiod if it is measured, or another contender.
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

// findLimit uses the program that MESH names, if its command limit takes the same flags, and otherwise builds the limit
// of this tree.
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

// findIstiod returns the binary that ISTIOD names, or the one in .tools, which it builds if it is missing.
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
