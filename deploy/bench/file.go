package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

const preamble = `# Results

istiod-lite is compared with the real istiod. Each runs in turn on one core, on the same API server, with the same mesh
and the same simulated Envoys on the other cores. Figures are medians, with the lowest and the highest of all rounds in
parentheses. CPU is user and system time of the server's process. Ratios are istiod's figure ÷ ours. A goal is met when
it is reached against two istiods: one with default settings, and one tuned with PILOT_DEBOUNCE_AFTER=10ms,
PILOT_MAX_REQUESTS_PER_SECOND=100000 and PILOT_PUSH_THROTTLE=200. A goal stays open if one of them has no figure.
istiod runs without injection, except in W11b. With few changes, a p99 is close to the worst of them: "changes" says how
many there were, each to all proxies. The limit is a program that forwards bytes and translates nothing: it shows what
gRPC and the kernel cost, with whole routes and with separate virtual hosts (VHDS). The last ratio is our figure ÷ the
lower of the two. The tuned istiod feeds the limit, so its latencies include that istiod's latencies.
` + "`make bench`" + ` writes this file, and doc.go says how. Each section says when it was measured: running a workload
again replaces only its sections.
`

// section is the text below a heading of the second level.
type section struct{ heading, body string }

// These sections are made from the others.
const (
	summaryHeading = "Goals"
	growthHeading  = "How cost grows"
	plotFolder     = "plots"
)

// write replaces the sections of the file that were measured again, by heading, and keeps the others.
func (r *results) write(path string) error {
	sections, err := readSections(path)
	if err != nil {
		return err
	}
	for _, t := range r.tables {
		heading := t.heading()
		sections = slices.DeleteFunc(sections, func(s section) bool { return s.heading == heading })
		sections = append(sections, section{heading: heading, body: t.markdown(r)})
	}
	return writeSections(path, sections)
}

// readSections returns the sections of a file, or none if it does not exist.
func readSections(path string) ([]section, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read old results: %w", err)
	}
	return slices.DeleteFunc(sectionsOf(string(old)),
		func(s section) bool { return s.heading == summaryHeading || s.heading == growthHeading }), nil
}

func writeSections(path string, sections []section) error {
	slices.SortFunc(sections, func(a, b section) int { return compare(a.heading, b.heading) })
	plots, err := filepath.Glob(filepath.Join(filepath.Dir(path), plotFolder, "*.svg"))
	if err != nil {
		return fmt.Errorf("look for plots: %w", err)
	}
	derived := []section{{summaryHeading, summary(sections)}}
	if len(plots) > 0 {
		var b strings.Builder
		b.WriteString("Medians of the sections below, in delta, against services at 300 proxies and against proxies at 1000 services.\n\n")
		for _, p := range plots {
			name := filepath.Base(p)
			fmt.Fprintf(&b, "![%s](%s/%s)\n", strings.TrimSuffix(name, ".svg"), plotFolder, name)
		}
		derived = append(derived, section{growthHeading, b.String()})
	}
	var b strings.Builder
	b.WriteString(preamble)
	for _, s := range append(derived, sections...) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.heading, strings.TrimSpace(s.body))
	}
	next := path + ".new" // a full disk must not destroy earlier results
	err = os.WriteFile(next, []byte(b.String()), 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write results: %w", err), os.RemoveAll(next))
	}
	return nil
}

func sectionsOf(text string) (all []section) {
	for _, part := range strings.Split("\n"+text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		all = append(all, section{heading: strings.TrimSpace(heading), body: body})
	}
	return all
}

// compare orders headings. Numbers in them are compared as numbers.
func compare(a, b string) int {
	for a != "" && b != "" {
		x, restA := piece(a)
		y, restB := piece(b)
		order := cmp.Compare(x, y)
		if unicode.IsDigit(rune(x[0])) && unicode.IsDigit(rune(y[0])) && len(x) != len(y) {
			order = cmp.Compare(len(x), len(y))
		}
		if order != 0 {
			return order
		}
		a, b = restA, restB
	}
	return cmp.Compare(a, b)
}

// piece splits off the leading digits, or the text before the next digit.
func piece(s string) (first, rest string) {
	digits := unicode.IsDigit(rune(s[0]))
	end := strings.IndexFunc(s, func(r rune) bool { return unicode.IsDigit(r) != digits })
	if end < 0 {
		return s, ""
	}
	return s[:end], s[end:]
}
