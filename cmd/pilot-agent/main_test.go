package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples checks that every command has examples with flags and arguments that it accepts.
func TestExamples(t *testing.T) {
	root := rootCommand(nil, nil)
	for _, c := range append(root.Commands(), root) {
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			words := strings.Fields(line)
			if words[0] != "pilot-agent" {
				t.Errorf("%s: %q is of another program", c.CommandPath(), line)
			}
			shown, rest, err := rootCommand(nil, nil).Find(words[1:])
			if err == nil {
				err = shown.ParseFlags(rest)
			}
			for word := range slices.Values(words) {
				if name, isFlag := strings.CutPrefix(word, "--"); err == nil && isFlag && shown.Flags().Lookup(name) == nil {
					t.Errorf("%q: no flag %s", line, word)
				}
			}
			if err == nil {
				err = shown.ValidateArgs(shown.Flags().Args())
			}
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}

// TestCompletion checks that shells complete the values of commands and flags, and file names only where files are
// expected.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{"version -o": "json\nyaml\n:4\n", "version": ":4\n", "proxy": "sidecar\nrouter\n:4\n"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(append([]string{cobra.ShellCompRequestCmd}, strings.Fields(line)...), ""), nil, &out,
			&errs); code != 0 || out.String() != want {
			t.Errorf("%s: exit %d, %q%s", line, code, out.String(), errs.String())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--short"}, {"version", "-o", "json"}, {"version", "-o", "yaml"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), "1.31.1-lite.1") {
			t.Errorf("%v: exit %d, %s%s", args, code, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"version", "-o", "xml"}, nil, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "json or yaml") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
