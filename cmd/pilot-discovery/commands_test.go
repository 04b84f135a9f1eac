package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/diff"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/why"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Every command says in short and at length what it does, and has examples that its flags and arguments take.
func TestCommandsAreDescribed(t *testing.T) {
	e := env.Env{}
	for _, c := range commandsOf(rootCommand(&e, nil)) {
		if c.Short == "" || c.Long == "" || c.Long == c.Short || c.Example == "" {
			t.Errorf("%s: Short %q, Long %q, Example %q", c.CommandPath(), c.Short, c.Long, c.Example)
		}
		if strings.HasSuffix(c.Short, ".") || !strings.HasSuffix(strings.TrimSpace(c.Long), ".") && !strings.Contains(c.Long, "\n") {
			t.Errorf("%s: a short text has no full stop, and a long one has", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
		})
		for line := range strings.SplitSeq(c.Example, "\n") {
			example(t, line)
		}
	}
}

// example parses the command of this program in one line of examples, without running it.
func example(t *testing.T, line string) {
	t.Helper()
	i := strings.LastIndex(line, "pilot-discovery ")
	if i < 0 {
		t.Errorf("%q names no command", line)
		return
	}
	args := why.WithoutArrow(words(line[i+len("pilot-discovery "):]))
	e := env.Env{}
	root := rootCommand(&e, args)
	root.InitDefaultCompletionCmd(args...)
	c, rest, err := root.Find(args)
	if err != nil || c == root {
		t.Errorf("%q: %v", line, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("%q: %v", line, err)
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		t.Errorf("%q: %v", line, err)
	}
	if err := c.ValidateFlagGroups(); err != nil {
		t.Errorf("%q: %v", line, err)
	}
}

// words splits a line as a shell does, up to where its output goes elsewhere.
func words(line string) (list []string) {
	word, quote, open := "", rune(0), false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, open = r, true
		case quote != 0:
			word += string(r)
		case quote == 0 && strings.ContainsRune("|><);&", r):
			if word != "" {
				list = append(list, word)
			}
			return list
		case r == ' ':
			if word != "" || open {
				list = append(list, word)
			}
			word, open = "", false
		default:
			word += string(r)
		}
	}
	return list
}

// Formats of -o are refused by name where a command does not have them, and shells complete those that it has. What is
// wrong goes to the standard error, and the exit code is 1.
func TestOutputFlags(t *testing.T) {
	e := env.Env{}
	with := 0
	for _, c := range commandsOf(rootCommand(&e, nil)) {
		f := c.Flags().Lookup("output")
		if f == nil || f.Value.Type() != "format" {
			continue
		}
		with++
		name := c.Name()
		var out, said strings.Builder
		broken := 1
		if name == "diff" { // 1 says that something differs
			broken = diff.Broken
		}
		if code := run(t.Context(), []string{name, "-o", "jsn"}, nil, &out, &said); code != broken || out.Len() > 0 ||
			!strings.Contains(said.String(), `did you mean "json"?`) {
			t.Errorf("%s -o jsn: %d %q %q", name, code, out.String(), said.String())
		}
		out.Reset()
		if code := run(t.Context(), []string{cobra.ShellCompNoDescRequestCmd, name, "-o", ""}, nil, &out, io.Discard); code != 0 {
			t.Errorf("%s: completion fails", name)
		}
		for format := range strings.SplitSeq(f.Usage, ", ") {
			if !slices.Contains(strings.Split(out.String(), "\n"), format) {
				t.Errorf("%s: -o %s is not completed: %q", name, format, out.String())
			}
		}
	}
	if with < 10 {
		t.Errorf("only %d commands have formats", with)
	}
}

// Flags and commands that are not there are answered with those that were probably meant.
func TestMistakes(t *testing.T) {
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{"anlyze"}, "did you mean analyze?"},
		{[]string{"nothing-like-it"}, "pilot-discovery --help lists them"},
		{[]string{"analyze", "--all-namespace"}, "did you mean --all-namespaces?"},
		{[]string{"translate", "x", "--prox", "a.b"}, "did you mean --proxy?"},
		{[]string{"version", "--zzzzzz"}, "see pilot-discovery version --help"},
		{[]string{"why"}, "the arguments are missing: write pilot-discovery why SOURCE HOST:PORT\nfor example: pilot-discovery why "},
		{[]string{"request", "GET"}, "the arguments do not fit: write pilot-discovery request METHOD PATH"},
		{[]string{"bootstrap"}, "it needs --ads and --node"},
		{[]string{"translate", "x"}, "it needs one of --node, --pod, --proxy"},
		{[]string{"check", "--pre", "--proxy", "a.b"}, "--pre and --proxy exclude each other"},
		{[]string{"completion", "tcsh"}, `unknown command "tcsh" for "completion"`},
		{[]string{"migrate", "-f", "-", "--watch"}, "the standard input is read once only"},
		{[]string{"version", "--color", "pink"}, ""},
	} {
		var out, said strings.Builder
		code := run(t.Context(), x.args, nil, &out, &said)
		if x.says != "" && (code != 1 || out.Len() > 0 || !strings.Contains(said.String(), x.says)) {
			t.Errorf("%v: %d %q %q", x.args, code, out.String(), said.String())
		}
	}
}

// What is watched is printed anew when it has changed, wrong or not, until a signal ends it.
func TestWatch(t *testing.T) {
	change := filepath.Join(t.TempDir(), "change.yaml")
	write := func(text string) { // whole: what is watched is never half a file
		t.Helper()
		must.Succeed(t, os.WriteFile(change+".new", []byte(text), 0o600))
		must.Succeed(t, os.Rename(change+".new", change))
	}
	web, err := os.ReadFile("testdata/mesh/web.yaml")
	must.Succeed(t, err)
	write(string(web))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shown, done := make(chan string, 1), make(chan int)
	var beside strings.Builder
	go func() {
		done <- run(ctx, []string{"diff", "testdata/mesh", "-f", change, "--watch"}, nil, writerFunc(func(text string) {
			shown <- text
		}), &beside)
	}()
	for _, x := range []struct{ change, says string }{
		{strings.ReplaceAll(string(web), "port: 80", "port: 81"), "No object differs from what there is."},
		{"kind: [", "outbound|81||web.a.svc.cluster.local"},
		{string(web), "error: the change is not one that a server takes:\n" + change + ":"},
		{"", "No object differs from what there is."},
	} {
		if text := <-shown; !strings.Contains(text, x.says) {
			t.Errorf("%q: want %q", text, x.says)
		}
		write(x.change)
	}
	cancel()
	if code := <-done; code != 0 || beside.Len() > 0 {
		t.Errorf("exit code %d, and beside the output %q", code, beside.String())
	}
}

// Names are completed: codes, and without a server nothing of it.
func TestCompletion(t *testing.T) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "NoEnd"}, "NoEndpoints"},
		{[]string{"request", "GET", "/m"}, "/metrics"},
		{[]string{"proxy-status", "--address", "127.0.0.1:1", ""}, ":4"},
		{[]string{"check", "--address", "127.0.0.1:1", "--proxy", ""}, ":4"},
		{[]string{"analyze", "--failure-threshold", ""}, "Warning"},
		{[]string{"check", "--color", ""}, "never"},
		{[]string{"bootstrap", "--type", ""}, "router"},
		{[]string{"why", "--configDir", "testdata/mesh", ""}, "web-1.a"},
		{[]string{"why", "--configDir", "testdata/mesh", "web-1.a", ""}, "web.a.svc.cluster.local:80"},
		{[]string{"why", "--address", "127.0.0.1:1", ""}, ":4"},
		{[]string{"diff", "testdata/mesh", "--delete", ""}, "Service/web.a"},
		{[]string{"diff", "--against", ""}, "cluster"},
		{[]string{"migrate", "--context", ""}, ":4"},
		{[]string{"version", "-o", ""}, "json\nyaml\n:4"},
		{[]string{"version", ""}, ":4"},
		{[]string{"pushes", ""}, ":4"},
		{[]string{"analyze", "-f", ""}, ":0"},
	} {
		var out strings.Builder
		if code := run(t.Context(), append([]string{cobra.ShellCompNoDescRequestCmd}, x.args...), nil, &out, io.Discard); code != 0 ||
			!strings.Contains(out.String(), x.want) {
			t.Errorf("%v: %d %q", x.args, code, out.String())
		}
	}
}

// explain has every format.
func TestExplainFormats(t *testing.T) {
	for _, format := range []string{"table", "wide", "json", "yaml", "name"} {
		var out strings.Builder
		if code := run(t.Context(), []string{"explain", "IST0101", "-o", format}, nil, &out, io.Discard); code != 0 ||
			!strings.Contains(out.String(), "IST0101") {
			t.Errorf("%s: %d %s", format, code, out.String())
		}
		var v any
		if format == "json" || format == "yaml" {
			if err := yaml.Unmarshal([]byte(out.String()), &v); err != nil {
				t.Errorf("%s: %v", format, err)
			}
		}
	}
}

// Commands of this program in the README and in docs/ have flags and arguments that it takes, and links lead somewhere.
func TestDocuments(t *testing.T) {
	root := filepath.Join("..", "..")
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) < 4 {
		t.Fatalf("%v: %v", documents, err)
	}
	commands := 0
	for _, path := range append(documents, filepath.Join(root, "README.md")) {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		text := strings.ReplaceAll(string(data), "\\\n", " ")
		for _, line := range commandsIn(text) {
			commands++
			example(t, line)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") || target == "" {
				continue
			}
			linked, err := os.ReadFile(filepath.Join(filepath.Dir(path), target))
			if err != nil {
				if info, statErr := os.Stat(filepath.Join(filepath.Dir(path), target)); statErr != nil || !info.IsDir() {
					t.Errorf("%s: %v", path, err)
				}
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(linked)), anchor) {
				t.Errorf("%s: %s has no heading #%s", path, target, anchor)
			}
		}
	}
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

// commandsIn returns the commands of this program in a document: in blocks of code, and between backquotes where flags
// or arguments follow.
func commandsIn(text string) (list []string) {
	var prose strings.Builder
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			line, _, _ = strings.Cut(line, " #")
			for part := range strings.SplitSeq(line, ";") {
				if regexp.MustCompile(`\bpilot-discovery +[a-z]`).MatchString(part) {
					part = strings.ReplaceAll(part, " 2>/dev/null", "")
					list = append(list, part)
				}
			}
		default:
			prose.WriteString(line + "\n")
		}
	}
	for _, m := range regexp.MustCompile("`([^`]*\\bpilot-discovery\\s+[a-z-]+\\s[^`]*)`").FindAllStringSubmatch(prose.String(), -1) {
		if line := strings.Join(strings.Fields(m[1]), " "); !strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ",") {
			list = append(list, line)
		}
	}
	return list
}

// anchors returns the anchors that a reader of Markdown makes of headings.
func anchors(text string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		list = append(list, strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}
