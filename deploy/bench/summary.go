package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// measured is a line of a section's table: cells by the titles of their columns.
type measured struct {
	row   string
	cells map[string]string
}

// readTable parses the lines of a section's table.
func readTable(body string) (lines []measured) {
	var titles []string
	for text := range strings.Lines(body) {
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "|") || strings.HasPrefix(text, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(text, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if titles == nil {
			titles = cells
			continue
		}
		m := measured{row: cells[0], cells: map[string]string{}}
		for i := 1; i < min(len(cells), len(titles)); i++ {
			m.cells[titles[i]] = cells[i]
		}
		lines = append(lines, m)
	}
	return lines
}

// median returns the figure of a cell without its spread.
func median(cell string) (float64, bool) {
	text, _, _ := strings.Cut(cell, " ")
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// usual reports whether goals apply to the setting of a section.
func usual(s section) bool {
	return strings.Contains(s.heading, fmt.Sprintf(", %d services", usualServices)) &&
		(!strings.Contains(s.heading, "proxies") || strings.Contains(s.heading, fmt.Sprintf(", %d proxies", usualProxies)))
}

// summary returns the table of all goals. It has the rows of the usual size, or all rows if there are none of that
// size.
func summary(sections []section) string {
	if slices.ContainsFunc(sections, usual) {
		sections = slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return !usual(s) })
	}
	titles := []string{"istiod", "istiod, tuned", "istiod-lite", "limit", "limit, VHDS"}
	var b strings.Builder
	fmt.Fprintf(&b, "| section | figure | %s | goal |\n|---|---|%s---|\n", strings.Join(titles, " | "), strings.Repeat("---:|", len(titles)))
	met, missed := 0, 0
	for _, s := range sections {
		for _, m := range readTable(s.body) {
			goal := m.cells["goal"]
			if goal == "" {
				continue
			}
			switch {
			case strings.HasSuffix(goal, ": met"):
				met++
			case strings.HasSuffix(goal, "**missed**"):
				missed++
			}
			fmt.Fprintf(&b, "| %s | %s |", s.heading, m.row)
			for _, title := range titles {
				cell, _, _ := strings.Cut(m.cells[title], " ")
				fmt.Fprintf(&b, " %s |", cell)
			}
			fmt.Fprintf(&b, " %s |\n", goal)
		}
	}
	return fmt.Sprintf("%d met, %d missed. The sections below say more.\n\n%s", met, missed, b.String())
}
