package report

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
)

func sample() Report {
	return Report{Objects: 3, Version: "1.0", Findings: []diag.Diagnostic{
		{Severity: diag.Error, Code: "IST0101", Object: "VirtualService a/v", Field: "spec.hosts[0]",
			Message: "no host 100% there", Fix: "add it", File: "dir a/x:y,z.yaml", Line: 3, Column: 7},
		{Severity: diag.Warning, Code: "UnknownField", Object: "VirtualService a/v",
			Message: "two\nlines\r", File: "/abs/b.yaml", Line: 1, Column: 1},
		{Severity: diag.Info, Code: "IST0118", Object: "Service a/s", Message: "of a cluster"},
		{Severity: diag.Warning, Code: "NoEndpoints", Message: "of a file", File: "c:d.yaml"},
		{Severity: diag.Error, Message: "without anything"},
	}}
}

func write(t *testing.T, r Report, format string) string {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, r.Write(&b, format))
	return b.String()
}

// Workflow commands are escaped as GitHub documents: % and line ends in messages, colons and commas in properties too.
func TestGitHub(t *testing.T) {
	want := `::error file=dir a/x%3Ay%2Cz.yaml,line=3,col=7,title=IST0101::VirtualService a/v: spec.hosts[0]: no host 100%25 there; add it
::warning file=/abs/b.yaml,line=1,col=1,title=UnknownField::VirtualService a/v: two%0Alines%0D
::notice title=IST0118::Service a/s: of a cluster
::warning file=c%3Ad.yaml,title=NoEndpoints::of a file
::error title=finding::without anything
`
	if got := write(t, sample(), "github"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := write(t, Report{Refusal: "a\nb"}, "github"); got != "::error title=refused::a server would refuse to start: a%0Ab\n" {
		t.Errorf("of a refusal: %s", got)
	}
}

// A log of SARIF has what its schema requires, refers to rules that it has, and says where each finding is.
func TestSARIF(t *testing.T) {
	for _, r := range []Report{sample(), {}, {Refusal: "no"}} {
		var log struct {
			Schema  string `json:"$schema"`
			Version string
			Runs    []struct {
				Tool struct {
					Driver struct {
						Name  string
						Rules []struct {
							ID               string
							ShortDescription struct{ Text string }
						}
					}
				}
				ColumnKind string
				Results    []struct {
					RuleID    string
					RuleIndex int
					Level     string
					Message   struct{ Text string }
					Locations []struct {
						PhysicalLocation *struct {
							ArtifactLocation struct{ URI string }
							Region           *struct{ StartLine, StartColumn int }
						}
						LogicalLocations []struct{ FullyQualifiedName string }
					}
				}
			}
		}
		must.Succeed(t, json.Unmarshal([]byte(write(t, r, "sarif")), &log))
		if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif-schema-2.1.0") ||
			len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" {
			t.Fatalf("the head: %+v", log)
		}
		run := log.Runs[0]
		if !strings.Contains(write(t, r, "sarif"), `"results": [`) ||
			!slices.Contains([]string{"utf16CodeUnits", "unicodeCodePoints"}, run.ColumnKind) {
			t.Error("results are an array, and the columns are of a known kind")
		}
		for i, rule := range run.Tool.Driver.Rules {
			if rule.ID == "" || rule.ShortDescription.Text == "" || slices.ContainsFunc(run.Tool.Driver.Rules[:i], func(other struct {
				ID               string
				ShortDescription struct{ Text string }
			}) bool {
				return other.ID == rule.ID
			}) {
				t.Errorf("rule %d: %+v", i, rule)
			}
		}
		if want := len(r.Findings); r.Refusal == "" && len(run.Results) != want || r.Refusal != "" && len(run.Results) != want+1 {
			t.Errorf("%d results", len(run.Results))
		}
		for i, result := range run.Results {
			if result.Message.Text == "" || !slices.Contains([]string{"none", "note", "warning", "error"}, result.Level) ||
				run.Tool.Driver.Rules[result.RuleIndex].ID != result.RuleID {
				t.Errorf("result %d: %+v", i, result)
			}
			for _, l := range result.Locations {
				if p := l.PhysicalLocation; p != nil {
					if _, err := url.Parse(p.ArtifactLocation.URI); err != nil || p.Region != nil && (p.Region.StartLine < 1 || p.Region.StartColumn < 1) {
						t.Errorf("result %d: %v %+v", i, err, p)
					}
				}
			}
		}
		if len(r.Findings) == 0 {
			continue
		}
		first, second := run.Results[0], run.Results[1]
		if p := first.Locations[0].PhysicalLocation; first.RuleID != "IST0101" ||
			p.ArtifactLocation.URI != "dir%20a/x:y,z.yaml" || p.Region.StartLine != 3 || p.Region.StartColumn != 7 {
			t.Errorf("the first: %+v", first)
		}
		if second.RuleID != "IST0106" || second.Locations[0].PhysicalLocation.ArtifactLocation.URI != "file:///abs/b.yaml" {
			t.Errorf("the second: %+v", second)
		}
		if l := run.Results[2].Locations[0]; l.PhysicalLocation != nil || l.LogicalLocations[0].FullyQualifiedName != "Service a/s" {
			t.Errorf("of a cluster: %+v", l)
		}
		if uri := run.Results[3].Locations[0].PhysicalLocation.ArtifactLocation.URI; uri != "./c:d.yaml" {
			t.Errorf("a name with a colon: %s", uri)
		}
	}
}

// Columns of the table are aligned, whatever is in them, and JSON and YAML have the same.
func TestFormats(t *testing.T) {
	lines := strings.Split(write(t, sample(), "table"), "\n")
	column := strings.Index(lines[0], "MESSAGE")
	if column < 0 || !strings.HasPrefix(lines[1][column:], "no host") || !strings.HasPrefix(lines[4][column:], "of a file") {
		t.Errorf("not aligned:\n%s", strings.Join(lines, "\n"))
	}
	asJSON, err := yaml.YAMLToJSON([]byte(write(t, sample(), "yaml")))
	must.Succeed(t, err)
	var a, b any
	must.Succeed(t, json.Unmarshal(asJSON, &a))
	must.Succeed(t, json.Unmarshal([]byte(write(t, sample(), "json")), &b))
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) || !strings.Contains(string(x), `"errors":2`) || !strings.Contains(string(x), `"infos":1`) {
		t.Errorf("YAML %s, JSON %s", x, y)
	}
	if err := sample().Write(&bytes.Buffer{}, "xml"); err == nil || CheckFormat("xml") == nil || CheckFormat("") != nil {
		t.Error("an unknown format is no error")
	}
}

// A control character of what was read reaches no terminal.
func TestControlCharacters(t *testing.T) {
	const bad = "a\x1b[2Jb\u009b1mc\x07\rd"
	r := Report{Findings: []diag.Diagnostic{{Code: bad, Object: bad, Field: bad, Message: bad, Fix: bad, File: bad}}}
	for _, format := range []string{"log", "table", "github"} {
		for _, r := range []Report{r, {Refusal: bad}} {
			for _, c := range strings.ReplaceAll(write(t, r, format), "\n", "") {
				if unicode.IsControl(c) {
					t.Errorf("%s has %q", format, c)
				}
			}
		}
	}
	if got := strings.Count(write(t, r, "log"), "\n"); got != 2 {
		t.Errorf("%d lines", got)
	}
	if got := write(t, Report{Refusal: "one\ntwo"}, "log"); !strings.HasSuffix(got, "one\ntwo\n0 errors, 0 warnings\n") {
		t.Errorf("two reasons: %q", got)
	}
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		text    string
		want    diag.Severity
		reached bool
		left    int
	}{{"Info", diag.Info, true, 5}, {"warning", diag.Warning, true, 4}, {"ERROR", diag.Error, true, 2}} {
		s, err := ParseSeverity(c.text)
		if err != nil || s != c.want || sample().Reaches(s) != c.reached || len(sample().From(s).Findings) != c.left {
			t.Errorf("%s: %v %v %d", c.text, s, err, len(sample().From(s).Findings))
		}
	}
	if _, err := ParseSeverity("fatal"); err == nil {
		t.Error("no error")
	}
	warned := Report{Findings: []diag.Diagnostic{{Severity: diag.Warning}}}
	if warned.Reaches(diag.Error) || !warned.Reaches(diag.Info) || !(Report{Refusal: "x"}).Reaches(diag.Error) {
		t.Error("a threshold is reached, or not, by mistake")
	}
}

// Every code of Istio's that an analyzer has is described.
func TestDescribe(t *testing.T) {
	for _, a := range analysis.Analyzers() {
		for _, code := range a.Codes {
			if c := analysis.Describe(code); strings.HasPrefix(code, "IST") &&
				(c.ID != code || c.Name == code || !strings.HasSuffix(c.URL, strings.ToLower(code)+"/")) {
				t.Errorf("%s: %+v", code, c)
			}
		}
	}
	if c := analysis.Describe("WrongType"); c.ID != "IST0106" {
		t.Errorf("%+v", c)
	}
}
