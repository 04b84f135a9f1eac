package migrate

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write the golden files")

// run returns what the command prints, without colours.
func run(t *testing.T, args ...string) string {
	t.Helper()
	e := env.New([]string{"HOME=" + t.TempDir()})
	c := Command(&e)
	var out bytes.Buffer
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SilenceErrors, c.SilenceUsage = true, true
	var printed cli.Exit
	if err := c.ExecuteContext(t.Context()); err != nil && !errors.As(err, &printed) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

// golden is a file of testdata: input files, and what the command prints about them. A file helm/NAMESPACE/NAME/CHART
// has the values of a release of Helm, as CHART is NAME@VERSION+DEPENDENCY.yaml.
type golden struct {
	name  string
	path  string
	a     *txtar.Archive
	input []txtar.File
}

func readGoldens(t *testing.T, folder string) (list []golden) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	must.Succeed(t, err)
	for _, path := range files {
		path, err := filepath.Abs(path)
		must.Succeed(t, err)
		a, err := txtar.ParseFile(path)
		must.Succeed(t, err)
		g := golden{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path, a: a}
		for _, f := range a.Files {
			if f.Name != "findings" && f.Name != "migrated.yaml" {
				g.input = append(g.input, f)
			}
		}
		list = append(list, g)
	}
	if len(list) == 0 {
		t.Fatal("no goldens of " + folder)
	}
	return list
}

// check compares what the command prints with the golden, or writes it.
func (g *golden) check(t *testing.T, args ...string) (findings, values string) {
	t.Helper()
	dir := t.TempDir()
	var stored []string
	for _, f := range g.input {
		if strings.HasPrefix(f.Name, "helm/") {
			stored = append(stored, secretOf(t, f))
			continue
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600))
	}
	t.Chdir(dir)
	if stored != nil {
		must.Succeed(t, os.WriteFile("secrets.yaml", []byte(strings.Join(stored, "---\n")), 0o600))
		args = append(args, "-f", "secrets.yaml")
	}
	findings, values = run(t, append(args, "-o", "wide")...), run(t, append(args, "-o", "values")...)
	got := &txtar.Archive{Comment: g.a.Comment, Files: append(slices.Clone(g.input),
		txtar.File{Name: "findings", Data: []byte(findings)}, txtar.File{Name: "migrated.yaml", Data: []byte(values)})}
	if *update {
		must.Succeed(t, os.WriteFile(g.path, txtar.Format(got), 0o644))
	} else if d := cmp.Diff(string(txtar.Format(g.a)), string(txtar.Format(got))); d != "" {
		t.Error(d)
	}
	return findings, values
}

// secretOf returns the Secret in which Helm keeps the release that a file has the values of.
func secretOf(t *testing.T, f txtar.File) string {
	t.Helper()
	part := strings.Split(f.Name, "/")
	chart, dependencies, _ := strings.Cut(strings.TrimSuffix(part[3], ".yaml"), "+")
	name, version, _ := strings.Cut(chart, "@")
	var values map[string]any
	must.Succeed(t, sigsyaml.Unmarshal(f.Data, &values))
	metadata := map[string]any{"name": name, "appVersion": version, "version": version, "keywords": []string{"istio"}}
	if dependencies != "" {
		var list []map[string]string
		for _, d := range strings.Split(dependencies, "+") {
			of, alias, _ := strings.Cut(d, "=")
			list = append(list, map[string]string{"name": of, "alias": alias, "repository": "https://charts.example/istio"})
		}
		metadata["dependencies"], metadata["keywords"] = list, nil
	}
	text, err := json.Marshal(map[string]any{"name": part[2], "namespace": part[1], "version": 2, "info": map[string]any{"status": "deployed"},
		"config": values, "chart": map[string]any{"metadata": metadata}})
	must.Succeed(t, err)
	return storedSecret(t, part[1], part[2], text)
}

// storedSecret returns the Secret for the JSON of a release.
func storedSecret(t *testing.T, namespace, name string, release []byte) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(release)
	must.Succeed(t, err)
	must.Succeed(t, z.Close())
	encoded := base64.StdEncoding.EncodeToString(packed.Bytes())
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: helm.sh/release.v1\nmetadata: {name: sh.helm.release.v1.%s.v2, namespace: %s, "+
		"labels: {owner: helm, status: deployed}}\ndata: {release: %s}\n", name, namespace, base64.StdEncoding.EncodeToString([]byte(encoded)))
}

// TestRunning reads control planes and gateways that run, and releases of Helm. deploy/charts renders the values.
func TestRunning(t *testing.T) {
	for _, g := range readGoldens(t, "running") {
		t.Run(g.name, func(t *testing.T) {
			var args []string
			for _, f := range g.input {
				if !strings.HasPrefix(f.Name, "helm/") {
					args = append(args, "-f", f.Name)
				}
			}
			g.check(t, args...)
		})
	}
}

// TestBack reads control planes of this project, for Istio's charts.
func TestBack(t *testing.T) {
	for _, g := range readGoldens(t, "back") {
		t.Run(g.name, func(t *testing.T) {
			args := []string{"--back"}
			for _, f := range g.input {
				if f.Name == "values.yaml" {
					args = append(args, "--values", f.Name)
				} else if !strings.HasPrefix(f.Name, "helm/") {
					args = append(args, "-f", f.Name)
				}
			}
			g.check(t, args...)
		})
	}
}

// TestNothingIsLost reads values files and IstioOperators in the manner of public ones. Each value of them is among the
// values for the charts of this tree, or a finding names its line. deploy/charts renders the values.
func TestNothingIsLost(t *testing.T) {
	all := readGoldens(t, "values")
	if len(all) < 20 {
		t.Errorf("only %d files", len(all))
	}
	for _, g := range all {
		t.Run(g.name, func(t *testing.T) {
			var args []string
			for _, f := range g.input {
				args = append(args, "--values", f.Name)
			}
			findings, values := g.check(t, args...)
			for _, f := range g.input {
				for _, x := range lost(t, f, findings, values) {
					t.Errorf("%s: it is not among the values, and no finding names it", x)
				}
			}
		})
	}
}

// TestThereAndBack moves the values for the charts of this tree back to Istio's. None is lost on the way.
func TestThereAndBack(t *testing.T) {
	all := append(readGoldens(t, "values"), readGoldens(t, "running")...)
	t.Chdir(t.TempDir())
	header := regexp.MustCompile(`^# Values of charts/([a-z]+)`)
	n := 0
	for _, g := range all {
		for _, f := range g.a.Files {
			if f.Name != "migrated.yaml" {
				continue
			}
			for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
				m := header.FindStringSubmatch(doc)
				if m == nil { // Istio's own chart stays
					continue
				}
				n++
				must.Succeed(t, os.WriteFile("there.yaml", []byte(doc), 0o600))
				args := []string{"--back", "--values", m[1] + "=there.yaml", "-o"}
				there := txtar.File{Name: "there.yaml", Data: []byte(doc)}
				for _, x := range lost(t, there, run(t, append(args, "wide")...), run(t, append(args, "values")...)) {
					t.Errorf("%s, chart %s: %s: it is not among the values, and no finding names it", g.name, m[1], x)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d files", n)
	}
}

// leaf is a scalar of a file of values, with the keys and the lines that lead to it.
type leaf struct {
	path  []string
	lines []int
	value string
}

func (l leaf) key() string {
	for _, name := range slices.Backward(l.path) {
		if name != "" {
			return name
		}
	}
	return ""
}

// leaves returns the scalars of a tree, with or without empty texts.
func leaves(n *yaml.Node, path []string, lines []int, empty bool) (list []leaf) {
	switch n.Kind {
	case yaml.MappingNode:
		each(n, func(key, value *yaml.Node) {
			list = append(list, leaves(value, append(slices.Clone(path), key.Value), append(slices.Clone(lines), key.Line), empty)...)
		})
	case yaml.SequenceNode:
		for _, x := range n.Content {
			list = append(list, leaves(x, append(slices.Clone(path), ""), append(slices.Clone(lines), x.Line), empty)...)
		}
	case yaml.ScalarNode:
		if n.ShortTag() != "!!null" && (empty || n.Value != "") {
			list = append(list, leaf{path, append(slices.Clone(lines), n.Line), n.Value})
		}
	}
	return list
}

// documents returns the trees of a YAML text.
func documents(t *testing.T, text []byte) (list []*yaml.Node) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, resolved(doc.Content[0]))
	}
}

// lost returns the values of a file that neither the migrated values nor the findings have.
func lost(t *testing.T, f txtar.File, findings, values string) (list []string) {
	t.Helper()
	kept := map[[2]string]bool{}
	for _, doc := range documents(t, []byte(values)) {
		for _, x := range leaves(doc, nil, nil, true) {
			kept[[2]string{x.key(), x.value}] = true
		}
	}
	places := map[string][]string{"label": {"labels"}}
	for _, of := range []map[string]string{ofPilot(), ofGateway(), ofAllGateways()} {
		for from, to := range of {
			from, to = from[strings.LastIndexByte(from, '.')+1:], to[strings.LastIndexByte(to, '.')+1:]
			places[from] = append(places[from], to)
		}
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(f.Name)+`:(\d+)`).FindAllStringSubmatch(findings, -1) {
		named[m[1]] = true
	}
	operator := strings.Contains(string(f.Data), "IstioOperator")
	for _, doc := range documents(t, f.Data) {
		tool := !operator && scalar(doc, "kind") != "" && scalar(doc, "apiVersion") != "" // its object has more than values
		for _, x := range leaves(doc, nil, nil, false) {
			if tool && !slices.Contains(x.path, "valuesObject") && (x.key() == "values" || !slices.Contains(x.path, "values")) {
				continue
			}
			found := slices.ContainsFunc(x.lines, func(line int) bool { return named[fmt.Sprint(line)] }) ||
				kept[[2]string{x.key(), x.value}] || structure(x, operator)
			for _, place := range places[x.key()] {
				found = found || kept[[2]string{place, x.value}]
			}
			if !found && operator && slices.Contains(x.path, "env") { // a list of variables becomes a mapping
				for pair := range kept {
					found = found || pair[0] == x.value || pair[1] == x.value
				}
			}
			if !found {
				list = append(list, fmt.Sprintf("%s:%d: %s=%s", f.Name, x.lines[len(x.lines)-1], strings.Join(x.path, "."), x.value))
			}
		}
	}
	return list
}

// structure reports whether a value only says what the file is about, or that a part is as it is by default.
func structure(x leaf, operator bool) bool {
	top := x.path[0]
	if top == "apiVersion" || top == "kind" || top == "metadata" || top == "status" {
		return true
	}
	path := strings.Join(x.path, ".")
	switch {
	case x.key() == "enabled", x.key() == "profile": // the releases that are written are those of enabled parts
		return true
	case operator && (strings.Contains(path, "hpaSpec.scaleTargetRef") || strings.HasSuffix(path, "strategy.type")):
		return true
	case operator && strings.HasSuffix(path, ".namespace") && strings.Contains(path, "Gateways"): // in the name of the release
		return true
	}
	return x.value == "false" || x.value == "0"
}

// Releases that cannot be read are findings. Releases of other charts, and revisions that were replaced, are nothing.
func TestBadReleases(t *testing.T) {
	t.Chdir(t.TempDir())
	release := func(name, status, chart string, version int) string {
		text, err := json.Marshal(map[string]any{"name": name, "namespace": "istio-system", "version": version,
			"info": map[string]any{"status": status}, "config": map[string]any{"revision": fmt.Sprintf("r%d", version)},
			"chart": map[string]any{"metadata": map[string]any{"name": chart}}})
		must.Succeed(t, err)
		return storedSecret(t, "istio-system", name, text)
	}
	const broken = "apiVersion: v1\nkind: Secret\nmetadata: {name: sh.helm.release.v1.broken.v1, namespace: a}\ndata: {release: %s}\n"
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct{ name, text, findings, values string }{
		{"no base64", fmt.Sprintf(broken, "'!'"), "! Secret a/sh.helm.release.v1.broken.v1: a release cannot be read: illegal base64", ""},
		{"no inner base64", fmt.Sprintf(broken, encoded("!")), "a release cannot be read: illegal base64", ""},
		{"no JSON", fmt.Sprintf(broken, encoded(encoded("a"))), "a release cannot be read: invalid character", ""},
		{"no gzip", fmt.Sprintf(broken, encoded(encoded("\x1f\x8b"))), "a release cannot be read: ", ""},
		{"empty", fmt.Sprintf(broken, "''"), "a release cannot be read: the key release is empty", ""},
		{"no chart", fmt.Sprintf(broken, encoded(encoded("{}"))), "a release cannot be read: it names no chart", ""},
		{"another chart", release("web", "deployed", "web", 1), "Nothing stands in the way", ""},
		{"a chart base of others", release("base", "deployed", "base", 1), "Nothing stands in the way", ""},
		{"the last one", release("istiod", "deployed", "istiod", 3) + "---\n" + strings.Replace(release("istiod", "deployed", "istiod", 2),
			".v2", ".v1", 1), "1 value works as it is written", "revision: r3"},
		{"replaced", release("istiod", "superseded", "istiod", 1), "Nothing stands in the way", ""},
		{"failed", release("istiod", "failed", "istiod", 4), "revision 4 of release istio-system/istiod is failed", ""},
		{"no status", release("istiod", "", "istiod", 4), "revision 4 of release istio-system/istiod is without a status", ""},
	} {
		must.Succeed(t, os.WriteFile("in.yaml", []byte(c.text), 0o600))
		if out := run(t, "-f", "in.yaml"); !strings.Contains(out, c.findings) {
			t.Errorf("%s: no %q in\n%s", c.name, c.findings, out)
		}
		if out := run(t, "-f", "in.yaml", "-o", "values"); !strings.Contains(out, c.values) || c.values == "" && out != "" {
			t.Errorf("%s: values\n%s", c.name, out)
		}
	}
}
