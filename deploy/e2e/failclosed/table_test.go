package failclosed

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// outcome is the result of an error in an input.
type outcome int

const (
	// refused: the server does not become ready, and reports the reason.
	refused outcome = iota + 1
	// kept: the last good content stays in force.
	kept
	// rest: everything except the wrong part is in force.
	rest
	// closed: a replacement lets nothing through.
	closed
	// whole: everything is in force, because the server finds the input in another way.
	whole
	// both: the last good version is in force, with the closing parts of the new one.
	both
	// held: a remote cluster is not read. Its proxies that resume wait, and new ones get the rest.
	held
)

// row is an input, and the effects of errors in it.
type row struct {
	input string // as in the document
	// file is the path of the input in the folder of the server. The default is mesh/input.yaml.
	file string
	// args returns arguments of the server. They may name files in its folder.
	args func(dir string) []string
	// world has other objects of the test.
	world string
	// good is content that closes something, and open is content that does not. Without open, the input is removed
	// instead.
	good, open string
	// files are other files of the server, by name.
	files map[string]string
	// gateway is true if the witness is a gateway and not a sidecar.
	gateway bool
	errors  []fault
}

// fault is an error in an input.
type fault struct {
	name string // as in the document
	// content replaces the input, or spoil changes it. One of them is set.
	content string
	spoil   func(t *testing.T, file string)
	said    string // matches the refusal or the finding
	// waits matches the readiness probe if the server waits for a corrected input. The default is said.
	waits   string
	start   outcome
	running outcome
	// silent is true if a running server does not report the error.
	silent bool
}

// tried returns the errors to run: all of them, or with -short the first of each pair of outcomes.
func (r row) tried() (list []fault) {
	if !testing.Short() {
		return r.errors
	}
	for _, f := range r.errors {
		if !slices.ContainsFunc(list, func(other fault) bool { return other.start == f.start && other.running == f.running }) {
			list = append(list, f)
		}
	}
	return list
}

const document = "docs/security/inputs.md"

// The table stands between these lines of the document.
const (
	tableBegins = "<!-- The table is made of the rows of deploy/e2e/failclosed, whose test compares them. -->\n"
	tableEnds   = "<!-- The table ends. -->\n"
)

// atStart, atRestart and whileRunning return the texts of the document.
func (o outcome) atStart() string {
	return map[outcome]string{
		refused: "not ready, and says why", rest: "the wrong part is left out, the rest is in force", closed: "a stand-in lets nothing through",
		whole: "everything is in force: the server finds it in another way", held: "the rest is in force, without that cluster",
	}[o]
}

func (o outcome) atRestart() string {
	switch o {
	case refused:
		return "not ready, and says why; proxies keep what they have"
	case held:
		return "proxies of that cluster keep what they have"
	}
	return o.atStart()
}

func (o outcome) whileRunning() string {
	switch o {
	case kept:
		return "the last good content stays in force"
	case both:
		return "the last good version stays in force, and what closes in the new one with it"
	}
	return o.atStart()
}

// table returns the rows as markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| input | error | first start | restart with connected proxies | while running |\n|---|---|---|---|---|\n")
	for _, r := range allRows() {
		for _, f := range r.errors {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.input, f.name, f.start.atStart(), f.start.atRestart(), f.running.whileRunning())
		}
	}
	return b.String()
}

// withTable returns the document with the table of the rows.
func withTable(got []byte) ([]byte, error) {
	before, others, ok := strings.Cut(string(got), tableBegins)
	_, after, ok2 := strings.Cut(others, tableEnds)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s has no lines %q and %q", document, tableBegins, tableEnds)
	}
	return []byte(before + tableBegins + "\n" + table() + "\n" + tableEnds + after), nil
}

// TestDocument: the document has the same content as the rows.
func TestDocument(t *testing.T) {
	got, err := os.ReadFile(os.Getenv(documentVar))
	must.Succeed(t, err)
	want, err := withTable(got)
	must.Succeed(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not say what the rows say: go test ./deploy/e2e/failclosed -run TestDocument -args -update", document)
	}
}
