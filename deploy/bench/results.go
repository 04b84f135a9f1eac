package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// results are all figures of one call.
type results struct {
	contenders []contender
	// footer says what was measured with what, and how to do it again.
	footer string
	tables []*table // in the order in which they were begun
}

// table is a section of the file.
type table struct {
	point
	workload workload
	figures  map[string]map[string][]float64 // by contender, by row: a figure a round
}

func newResults(ctx context.Context, all []contender) (*results, error) {
	found, err := cluster.Find()
	if err != nil {
		return nil, err
	}
	versions := []string{"istiod " + istioVersion}
	for _, c := range all {
		if c.name == lite {
			versions = append(versions, "istiod-lite "+firstLine(ctx, c.binary, "version")+" at "+firstLine(ctx, "git", "describe", "--always", "--dirty=-modified", "--abbrev=12"))
		}
	}
	versions = append(versions, firstLine(ctx, found.APIServer, "--version"), firstLine(ctx, found.Etcd, "--version"), runtime.Version())
	return &results{contenders: all, footer: fmt.Sprintf("Measured %s on %s, with %s, by `go run ./deploy/bench %s`.",
		time.Now().UTC().Format(time.DateOnly), machine(), strings.Join(versions, ", "), strings.Join(os.Args[1:], " "))}, nil
}

// firstLine is what a program says of itself.
func firstLine(ctx context.Context, binary string, args ...string) string {
	out, err := exec.CommandContext(ctx, binary, args...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return filepath.Base(binary) + " of unknown version"
	}
	return line
}

func machine() string {
	cpu := "CPUs of unknown model"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	var name unix.Utsname
	_, _ = unix.Sysinfo(&info), unix.Uname(&name) // zero values say that it is not known
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s", runtime.NumCPU(), cpu, info.Totalram*uint64(info.Unit)>>30, unix.ByteSliceToString(name.Release[:]))
}

func (r *results) add(at point, l workload, contender string, f figures) {
	i := slices.IndexFunc(r.tables, func(t *table) bool { return t.point == at })
	if i < 0 {
		i = len(r.tables)
		r.tables = append(r.tables, &table{point: at, workload: l, figures: map[string]map[string][]float64{}})
	}
	byRow := r.tables[i].figures
	if byRow[contender] == nil {
		byRow[contender] = map[string][]float64{}
	}
	for name, figure := range f {
		byRow[contender][name] = append(byRow[contender][name], figure)
	}
}

// heading is how a section is found again.
func (p point) heading() string {
	h := fmt.Sprintf("%s, %d services", p.workload, p.services)
	if p.mode != "" {
		h += fmt.Sprintf(", %d proxies, %s", p.proxies, p.mode)
	}
	return h
}

// markdown is the section without its heading.
func (t *table) markdown(all []contender, footer string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n|  |", t.workload.about())
	rule := "\n|---|"
	for _, c := range all {
		fmt.Fprintf(&b, " %s |", c.title)
		rule += "---:|"
	}
	for _, c := range all {
		if c.name != lite {
			fmt.Fprintf(&b, " %s ÷ lite |", c.title)
			rule += "---:|"
		}
	}
	b.WriteString(" goal |" + rule + "---|\n")
	for _, row := range t.workload.rows() {
		fmt.Fprintf(&b, "| %s |", strings.TrimSuffix(row.name+", "+row.unit, ", "))
		medians := map[string]float64{}
		for _, c := range all {
			figures := t.figures[c.name][row.name]
			if len(figures) == 0 {
				b.WriteString(" |")
				continue
			}
			s := spreadOf(figures)
			medians[c.name] = s.median
			fmt.Fprintf(&b, " %s (%s…%s) |", number(s.median), number(s.low), number(s.high))
		}
		met, compared := true, false
		ours, measured := medians[lite]
		goal := row.ratio[t.goals()]
		for _, c := range all {
			if c.name == lite {
				continue
			}
			theirs, ok := medians[c.name]
			if row.informative || !ok || !measured || ours == 0 {
				b.WriteString(" |")
				continue
			}
			compared = true
			met = met && theirs/ours >= goal
			fmt.Fprintf(&b, " %s |", number(theirs/ours))
		}
		b.WriteString(" " + verdict(goal, row.atMost, ours, measured, met, compared) + " |\n")
	}
	fmt.Fprintf(&b, "\n%s Rounds: %d.\n", footer, t.rounds())
	return b.String()
}

// goals is the mode whose goals hold.
func (t *table) goals() mode {
	if t.mode == "" {
		return delta
	}
	return t.mode
}

func (t *table) rounds() (most int) {
	for _, byRow := range t.figures {
		for _, f := range byRow {
			most = max(most, len(f))
		}
	}
	return most
}

// verdict names the goals of a row and tells whether they are met, as far as that was measured.
func verdict(ratio float64, atMost *float64, ours float64, measured, met, compared bool) string {
	var goals []string
	known := measured
	if ratio > 0 {
		goals = append(goals, "ratio ≥ "+number(ratio))
		known = known && compared
	}
	if atMost != nil {
		goals = append(goals, "≤ "+number(*atMost))
		met = met && ours <= *atMost*1.005
	}
	text := strings.Join(goals, ", ")
	switch {
	case text == "" || !known:
		return text
	case met:
		return text + ": met"
	default:
		return text + ": **missed**"
	}
}

// number has three digits that count.
func number(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 0.995:
		return fmt.Sprintf("%.3f", f)
	case f < 9.95:
		return fmt.Sprintf("%.2f", f)
	case f < 99.5:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}

// String shows figures in one line.
func (f figures) String() string {
	var parts []string
	for name, v := range f {
		parts = append(parts, name+"="+number(v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
