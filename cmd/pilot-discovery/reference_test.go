package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/api/diag/explain"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write the reference in docs/ anew")

// The reference in docs/ is what the code says: `make gen` writes it.
func TestReference(t *testing.T) {
	e := env.Env{}
	root := rootCommand(&e, nil)
	for name, text := range map[string]string{
		"commands.md":    commandsReference(root),
		"environment.md": environmentReference(),
		"findings.md":    findingsReference(),
		"metadata.md":    metadataReference(),
		"values.md":      valuesReference(),
	} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a document
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("docs/reference/%s is not what the code says (%v): make gen, or go test ./cmd/pilot-discovery -run TestReference "+
				"-update", name, err)
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	must.Succeed(t, err)
	list, err := os.ReadDir(filepath.Join("..", "..", "docs", "reference"))
	must.Succeed(t, err)
	for _, f := range list {
		if !strings.Contains(string(readme), "(docs/reference/"+f.Name()+")") {
			t.Errorf("README.md has no link to docs/reference/%s", f.Name())
		}
	}
}

const generated = "<!-- Written by `make gen` from the code: change that, and not this. -->\n\n"

func commandsReference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" + generated + "The commands of `pilot-discovery`, and their flags.\n")
	for _, c := range commandsOf(root) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", c.CommandPath(), prose(c.Long))
		if c.Runnable() {
			fmt.Fprintf(&b, "    %s\n", c.UseLine())
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\nFor example:\n\n```\n%s\n```\n", strings.TrimRight(unindent(c.Example), "\n"))
		}
		var rows []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			about := strings.TrimPrefix(f.Usage, "`")
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
				about += " (`" + f.DefValue + "`)"
			}
			rows = append(rows, fmt.Sprintf("- `%s`: %s", name, about))
		})
		if len(rows) > 0 {
			b.WriteByte('\n')
		}
		for _, row := range rows {
			b.WriteString(strings.ReplaceAll(terminal.Wrap(row, 116), "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

// commandsOf returns a command and those below it, but for what cobra adds.
func commandsOf(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, child := range c.Commands() {
		if child.Name() != "help" && child.Name() != "completion" && !child.Hidden {
			list = append(list, commandsOf(child)...)
		}
	}
	return list
}

// prose wraps paragraphs, and leaves what is indented as it is, marked as code.
func prose(text string) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if lines := strings.Split(paragraph, "\n"); len(lines) > 1 && strings.HasPrefix(lines[1], "  ") || strings.HasPrefix(paragraph, "  ") {
			var list []string
			for _, line := range lines {
				name, about, found := strings.Cut(strings.TrimSpace(line), "  ")
				switch {
				case !strings.HasPrefix(line, "  "):
					list = append(list, terminal.Wrap(line, 120), "")
				case found:
					list = append(list, strings.ReplaceAll(terminal.Wrap("- `"+name+"`: "+strings.TrimSpace(about), 118), "\n", "\n  "))
				default:
					list = append(list, "- `"+name+"`")
				}
			}
			out = append(out, strings.Join(list, "\n"))
			continue
		}
		out = append(out, terminal.Wrap(paragraph, 120))
	}
	return strings.Join(out, "\n\n")
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func environmentReference() string {
	var b strings.Builder
	b.WriteString("# Variables of the environment\n\n" + generated)
	b.WriteString(terminal.Wrap("What `pilot-discovery` reads of its environment. The names are istiod's, "+
		"but for ALLOWED_CIDRS_IN_JWKS_URIS. A variable that istiod reads, or that begins with PILOT_, "+
		"and has no effect here is named in the log at the start.", 120) + "\n\n")
	for _, v := range env.All() {
		row := "- `" + v.Name + "`: " + v.About
		if v.Otherwise != "" {
			row += " (`" + v.Otherwise + "`)"
		}
		b.WriteString(strings.ReplaceAll(terminal.Wrap(row, 118), "\n", "\n  ") + "\n")
	}
	b.WriteString("- `GOGC`, `GOMEMLIMIT`, `GOMAXPROCS`: " +
		"Go's own. Without GOMEMLIMIT the server keeps to nine tenths of what its cgroup\n  allows.\n")
	b.WriteString("- `NO_COLOR`: set to anything, what commands print has no colours.\n")
	b.WriteString("\n## Variables of istiod without an effect\n\n" +
		terminal.Wrap("istiod 1.31 reads these, and this control plane does not. `pilot-discovery migrate` names the ones that are set "+
			"to another value than istiod's default, and the server's log does so at the start.", 120) + "\n\n")
	all := settings.Environment()
	b.WriteString(groups(all, "", func(s settings.Setting) bool { return s.Effect == settings.Without || s.Effect == settings.Harmless }))
	b.WriteString("\n## Variables of istiod whose default is always in force\n\n" +
		terminal.Wrap("`pilot-discovery migrate` and the server's log name each that is set to another value.", 120) + "\n\n")
	b.WriteString(groups(all, "", func(s settings.Setting) bool { return s.Effect == settings.AlwaysOn }))
	b.WriteString("\n## Variables of the agent\n\n" + terminal.Wrap("Istio's agent 1.31 reads these beside a proxy. `pilot-agent` reads "+
		"the first ones. Its log names each of the others that is set to another value than the default, unless nothing in a "+
		"mesh depends on it.", 120) + "\n\n")
	agent := settings.Agent()
	b.WriteString(groups(agent, "", func(s settings.Setting) bool { return s.Effect == settings.Works }))
	b.WriteString("\nWithout an effect:\n\n")
	b.WriteString(groups(agent, "", func(s settings.Setting) bool { return s.Effect != settings.Works }))
	return b.String()
}

// groups lists settings whose names begin with a prefix, without the prefix, by their reasons.
func groups(list []settings.Setting, prefix string, keep func(settings.Setting) bool) string {
	var b strings.Builder
	for _, g := range settings.Groups(list, func(s settings.Setting) bool { return strings.HasPrefix(s.Name, prefix) && keep(s) }) {
		row := "- `" + strings.ReplaceAll(strings.Join(g.Names, "`, `"), prefix, "") + "`"
		switch g.Effect {
		case settings.Harmless:
			row = "- " + g.Why + " (nothing in a mesh depends on them): " + row[2:]
		case settings.Works:
		default:
			row = "- " + g.Why + ": " + row[2:]
		}
		b.WriteString(strings.ReplaceAll(terminal.Wrap(row, 118), "\n", "\n  ") + "\n")
	}
	return b.String()
}

func metadataReference() string {
	var b strings.Builder
	b.WriteString("# Metadata of proxies\n\n" + generated)
	b.WriteString(terminal.Wrap(
		"The entries of a proxy's metadata that Istio's agents send or istiod reads. A variable ISTIO_META_NAME of an agent is the entry NAME; "+
			"proxyMetadata in the configuration of a proxy sets such variables. EnvoyFilters "+
			"may match every entry that is a text of at most 256 bytes.", 120) + "\n")
	row := func(key, text string) {
		b.WriteString(strings.ReplaceAll(terminal.Wrap("- `"+key+"`: "+text, 118), "\n", "\n  ") + "\n")
	}
	b.WriteString("\n## Entries with an effect\n\n" +
		terminal.Wrap("A proxy whose IDLE_TIMEOUT or files cannot be used is named in the log.", 120) + "\n\n")
	for _, f := range node.Fields() {
		if f.Effect != "" {
			row(f.Key, f.Effect)
		}
	}
	b.WriteString("\n## Entries without an effect\n\n" +
		terminal.Wrap("If an entry has a fix, the log names each proxy that asks for the effect.", 120) + "\n\n")
	for _, f := range node.Fields() {
		switch {
		case f.Effect == "" && f.Fix != "":
			row(f.Key, f.Reason+". Fix: "+f.Fix)
		case f.Effect == "":
			row(f.Key, f.Reason)
		}
	}
	for _, of := range []string{"annotation", "label"} {
		title := strings.ToUpper(of[:1]) + of[1:] + "s"
		b.WriteString("\n## " + title + "\n\nThese " + of + "s of Istio have an effect:\n\n" +
			groups(settings.Metadata(), of+":", func(s settings.Setting) bool { return s.Effect == settings.Works }) +
			"\nThese have none:\n\n" +
			groups(settings.Metadata(), of+":", func(s settings.Setting) bool { return s.Effect != settings.Works }))
	}
	return b.String()
}

// valuesReference says of the values of Istio's charts what they do in the charts of this tree.
func valuesReference() string {
	var b strings.Builder
	b.WriteString("# Values of Istio's charts\n\n" + generated)
	b.WriteString(terminal.Wrap("What the values of Istio's charts 1.31 do in the charts of this tree. The notes of an installation and "+
		"`pilot-discovery migrate --values` name values without an effect. A value that no chart of Istio has is refused by its name. A name "+
		"stands for all values below it that are not in another list. Istio's chart cni is used as it is.", 120) + "\n")
	for _, chart := range []string{"base", "istiod", "gateway", "cni"} {
		list := groups(settings.Values(), chart+":", func(s settings.Setting) bool { return s.Effect == settings.Works })
		if list != "" {
			list = "These have the same effect:\n\n" + list + "\nThe others:\n\n"
		}
		b.WriteString("\n## Chart " + chart + "\n\n" + list +
			groups(settings.Values(), chart+":", func(s settings.Setting) bool { return s.Effect != settings.Works }))
	}
	return b.String()
}

func findingsReference() string {
	var b strings.Builder
	b.WriteString("# Findings\n\n" + generated)
	b.WriteString(terminal.Wrap("What `validate`, `analyze`, `check`, `/debug/findings` and statuses of objects report, "+
		"by the code that stands in brackets at the end of a finding. `pilot-discovery explain CODE` prints the same.", 120) + "\n")
	for _, e := range explain.All() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", strings.TrimSpace(e.Code+" "+e.Name), prose(e.Meaning))
		if e.YAML != "" {
			fmt.Fprintf(&b, "```yaml\n%s```\n\n", e.YAML)
		} else {
			b.WriteString(terminal.Wrap("Example: `"+e.Message+"`", 120) + "\n\n")
		}
		b.WriteString(terminal.Wrap("Fix: "+e.Fix, 120) + "\n")
	}
	return b.String()
}

// Every variable that is read is described, and no other.
func TestVariablesAreDescribed(t *testing.T) {
	e := env.Env{}
	rootCommand(&e, nil)
	e.Read = append(e.Read, "POD_NAME") // whose default is the host's name
	described := []string{}
	for _, v := range env.All() {
		described = append(described, v.Name)
		if v.About == "" {
			t.Errorf("%s has no description", v.Name)
		}
	}
	if read := slices.Compact(slices.Sorted(slices.Values(e.Read))); !slices.Equal(read, described) {
		t.Errorf("read: %v\ndescribed: %v", read, described)
	}
}
