package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// cell is what came of one protocol.
type cell struct {
	Requests int
	Served   int
}

// results are the cells of one user, by mode and protocol.
type results map[string]map[string]cell

const resultsFile = "results.json"

func (r results) save() error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv("TMPDIR"), resultsFile), b, 0o644)
}

// report prints the matrix, if any of it ran, and says which cells are empty or failed.
func report(users []suite.User) error {
	all := map[int]results{}
	for _, u := range users {
		b, err := os.ReadFile(filepath.Join(u.Dir, resultsFile))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var r results
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("results of user %d: %w", u.ID, err)
		}
		all[u.ID] = r
	}
	if len(all) == 0 {
		return nil
	}
	var errs []error
	var table strings.Builder
	fmt.Fprintf(&table, "%-20s", "requests served")
	for _, u := range users {
		for _, mode := range modes {
			fmt.Fprintf(&table, " %12s", fmt.Sprintf("%d/%s", u.ID, mode))
		}
	}
	for _, p := range protocols {
		fmt.Fprintf(&table, "\n%-20s", p.name)
		for _, u := range users {
			for _, mode := range modes {
				c := all[u.ID][mode][p.name]
				fmt.Fprintf(&table, " %12s", fmt.Sprintf("%d of %d", c.Served, c.Requests))
				if c.Requests == 0 && filtered() {
					continue
				}
				if c.Requests == 0 || c.Served != c.Requests {
					errs = append(errs, fmt.Errorf("matrix: user %d, %s, %s: %d of %d requests served", u.ID, mode, p.name, c.Served, c.Requests))
				}
			}
		}
	}
	fmt.Println(table.String())
	return errors.Join(errs...)
}

// filtered reports whether only some of the tests were asked for, so that a cell may be empty.
func filtered() bool {
	return slices.ContainsFunc(os.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "-test.run=") || strings.HasPrefix(arg, "-test.skip=")
	})
}
