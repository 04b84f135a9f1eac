package compat

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// RowsVar is the environment variable with the file to which CheckRow adds rows, for tests that run as a user who
// cannot reach MATRIX.md. Package suite sets it, and calls CheckRows after the tests.
const RowsVar = "COMPAT_ROWS"

// CheckProject checks the row of a program of another project: its version, what was tried with it, and the result.
func CheckProject(tool, version, how, result string) error {
	return CheckRow("Other projects", []string{"tool", "version", "how", "result"}, []string{tool, version, how, result})
}

// CheckRow returns an error if the row of MATRIX.md with the same first cell differs, in the section with that title.
// With Update it writes the row instead. So tests of several packages can share one section.
func CheckRow(title string, head, row []string) error {
	if path := os.Getenv(RowsVar); path != "" {
		return addRow(path, Table{Title: title, Head: head, Rows: [][]string{row}})
	}
	return check(Table{Title: title, Head: head, Rows: [][]string{row}}, replaceRow)
}

// addRow adds a row to a file, for CheckRows.
func addRow(path string, t Table) error {
	line, err := json.Marshal(t)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// CheckRows checks the rows that CheckRow has added to a file. Without the file there are none.
func CheckRows(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var errs []error
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var t Table
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil || len(t.Rows) != 1 {
			return fmt.Errorf("%s has no row: %q", path, lines.Text())
		}
		errs = append(errs, check(t, replaceRow))
	}
	return errors.Join(append(errs, lines.Err())...)
}

// replaceRow returns the document with the first row of a table in place of the row of its section that has the same
// first cell, or added. Rows are in the order of their first cells. The text before the rows stays.
func replaceRow(text string, t Table) string {
	all := t.lines()
	rows, about := []string{all[2]}, ""
	for _, s := range strings.Split(text, "\n## ")[1:] {
		title, content, _ := strings.Cut(s, "\n\n")
		if title != t.Title {
			continue
		}
		var table string
		if about, table, _ = strings.Cut("\n"+content, "\n| "); about != "" {
			about = strings.TrimPrefix(about, "\n") + "\n"
		}
		for line := range strings.Lines("| " + table) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") && line != all[0] && first(line) != first(rows[0]) {
				rows = append(rows, line)
			}
		}
	}
	slices.SortFunc(rows, func(a, b string) int { return cmp.Compare(strings.ToLower(first(a)), strings.ToLower(first(b))) })
	return replaceSection(text, t.Title, about+strings.Join(slices.Concat(all[:2], rows), "\n")+"\n")
}

// first returns the first cell of a line.
func first(line string) string {
	for i := 2; i < len(line); i++ {
		if line[i] == '|' && line[i-1] != '\\' {
			return line[:i]
		}
	}
	return line
}
