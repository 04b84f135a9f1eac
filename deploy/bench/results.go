package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"math"
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
	options    options
	// footer says with which versions and commands the figures were measured.
	footer string
	tables []*table // in the order of their first figures
}

// table is a section of the file.
type table struct {
	point
	workload workload
	figures  map[string]map[string][]float64 // by contender and row, one figure a round
	failures []string
}

func newResults(ctx context.Context, programs cluster.Binaries, all []contender, o options) *results {
	var versions []string
	for _, c := range all {
		switch {
		case c.name == lite:
			versions = append(versions, "istiod-lite "+firstLine(ctx, c.binary, "version")+" at "+
				firstLine(ctx, "git", "describe", "--always", "--dirty=-modified", "--abbrev=12"))
		case c.isIstiod():
			versions = append(versions, "istiod "+istiodVersion(c.binary))
		}
	}
	versions = append(slices.Compact(versions), firstLine(ctx, programs.APIServer, "--version"), firstLine(ctx, programs.Etcd, "--version"),
		runtime.Version())
	return &results{contenders: all, options: o, footer: fmt.Sprintf("Measured %s on %s, with %s, by `go run ./deploy/bench %s`.",
		time.Now().UTC().Format(time.DateOnly), machine(), strings.Join(versions, ", "), strings.Join(os.Args[1:], " "))}
}

// istiodVersion returns the version of the module that a binary was built from.
func istiodVersion(binary string) string {
	const module = "istio.io/istio"
	if info, err := buildinfo.ReadFile(binary); err == nil {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "" {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// firstLine returns the first line of a program's output.
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
	_, _ = unix.Sysinfo(&info), unix.Uname(&name) // zero values mean unknown
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s", runtime.NumCPU(), cpu, info.Totalram*uint64(info.Unit)>>30,
		unix.ByteSliceToString(name.Release[:]))
}

// at returns the table of a point, and creates it if needed.
func (r *results) at(at point, l workload) *table {
	i := slices.IndexFunc(r.tables, func(t *table) bool { return t.point == at })
	if i < 0 {
		i = len(r.tables)
		r.tables = append(r.tables, &table{point: at, workload: l, figures: map[string]map[string][]float64{}})
	}
	return r.tables[i]
}

func (r *results) add(at point, l workload, contender string, f figures) {
	byRow := r.at(at, l).figures
	if byRow[contender] == nil {
		byRow[contender] = map[string][]float64{}
	}
	for name, figure := range f {
		byRow[contender][name] = append(byRow[contender][name], figure)
	}
}

// fail notes a round without figures. Only the first line of the reason is written to the results.
func (r *results) fail(at point, l workload, title string, round int, err error) {
	t := r.at(at, l)
	reason, _, _ := strings.Cut(err.Error(), "\n")
	reason, _, _ = strings.Cut(reason, "; its log")
	t.failures = append(t.failures, fmt.Sprintf("%s, round %d: %s", title, round+1, reason))
}

// heading returns the heading of a point's section.
func (p point) heading() string {
	h := fmt.Sprintf("%s, %d services", p.workload, p.services)
	if p.mode != "" {
		h += fmt.Sprintf(", %d proxies, %s", p.proxies, p.mode)
	}
	return h
}

// markdown returns the section without its heading. Contenders that take no part have no column.
func (t *table) markdown(r *results) string {
	all := slices.DeleteFunc(slices.Clone(r.contenders), func(c contender) bool { return len(t.figures[c.name]) == 0 })
	limits := slices.ContainsFunc(all, contender.isLimit)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n|  |", t.workload.about(r.options))
	rule := "\n|---|"
	column := func(title string) {
		fmt.Fprintf(&b, " %s |", title)
		rule += "---:|"
	}
	for _, c := range all {
		column(c.title)
	}
	for _, c := range all {
		if c.isIstiod() {
			column(c.title + " ÷ lite")
		}
	}
	if limits {
		column("lite ÷ limit")
	}
	b.WriteString(" goal |" + rule + "---|\n")
	for _, row := range t.workload.rows() {
		t.line(&b, row, all, limits)
	}
	for _, f := range t.failures {
		fmt.Fprintf(&b, "\nFailed: %s\n", f)
	}
	fmt.Fprintf(&b, "\n%s Rounds: %d.\n", r.footer, t.rounds())
	return b.String()
}

func (t *table) line(b *strings.Builder, row row, all []contender, limits bool) {
	fmt.Fprintf(b, "| %s |", strings.TrimSuffix(row.name+", "+row.unit, ", "))
	medians := map[string]float64{}
	for _, c := range all {
		figures := t.figures[c.name][row.name]
		if len(figures) == 0 {
			b.WriteString(" |")
			continue
		}
		s := spreadOf(figures)
		medians[c.name] = s.median
		fmt.Fprintf(b, " %s (%s…%s) |", number(s.median), number(s.low), number(s.high))
	}
	met, compared := true, 0
	ours, measured := medians[lite]
	goal := row.ratio[t.goals()]
	for _, c := range all {
		if !c.isIstiod() {
			continue
		}
		theirs, ok := medians[c.name]
		if row.informative || !ok || !measured || ours < 0 || theirs < 0 || ours == 0 && theirs == 0 {
			b.WriteString(" |")
			continue
		}
		compared++
		met = met && theirs >= goal*ours
		fmt.Fprintf(b, " %s |", number(theirs/ours))
	}
	if limits {
		least := math.Inf(1)
		for _, c := range all {
			if figure, ok := medians[c.name]; ok && c.isLimit() {
				least = min(least, figure)
			}
		}
		if row.informative || !measured || math.IsInf(least, 1) || least <= 0 || ours < 0 {
			b.WriteString(" |")
		} else {
			fmt.Fprintf(b, " %s |", number(ours/least))
		}
	}
	// one istiod without a figure leaves the goal open
	b.WriteString(" " + verdict(goal, row.atMost, ours, measured, met, compared == 2 || !met) + " |\n")
}

// goals returns the mode whose goals apply.
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

// verdict describes the goals of a row, and whether they are met as far as they were measured.
func verdict(ratio float64, atMost *float64, ours float64, measured, met, compared bool) string {
	var goals []string
	known := measured
	if ratio > 0 {
		goals = append(goals, "ratio ≥ "+number(ratio))
		known = known && compared
	}
	if atMost != nil {
		goals = append(goals, "≤ "+number(*atMost))
		met = met && ours <= *atMost
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

// number formats a figure with three significant digits.
func number(f float64) string {
	switch {
	case f == 0:
		return "0"
	case math.IsInf(f, 0):
		return "∞"
	case f < 0:
		return "-" + number(-f)
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

// String formats figures in one line.
func (f figures) String() string {
	var parts []string
	for name, v := range f {
		parts = append(parts, name+"="+number(v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
