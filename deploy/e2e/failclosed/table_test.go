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

// outcome is what becomes of an input that breaks.
type outcome int

const (
	// refused is a server that does not become ready, and says why.
	refused outcome = iota + 1
	// kept is the last good content in force.
	kept
	// rest is everything in force but the part that is wrong.
	rest
	// closed is a stand-in that lets nothing through.
	closed
	// whole is everything in force: the server finds it in another way.
	whole
	// both is the last good version in force, and with it what closes in the new one.
	both
	// held is a remote cluster that is not read: proxies of it that resume wait, and new ones get the rest.
	held
)

// row is an input, and what errors in it do.
type row struct {
	input string // as the document names it
	// file is where the input is, in the folder of the server; empty: mesh/input.yaml.
	file string
	// args returns arguments of the server. They may name files in its folder.
	args func(dir string) []string
	// world has the objects beside the input.
	world string
	// good is the content that closes something, and open one that does not. Without open, the input is removed.
	good, open string
	// files are further files of the server, by name.
	files map[string]string
	// gateway has a gateway for the witness, in place of a sidecar.
	gateway bool
	errors  []fault
}

// fault is an error in an input.
type fault struct {
	name string // as the document names it
	// content takes the place of the input, or spoil does it. One of them is there.
	content string
	spoil   func(t *testing.T, file string)
	said    string // what the refusal or the finding matches
	// waits is what the readiness probe matches if the server waits for a mended input; empty: as said.
	waits   string
	start   outcome
	running outcome
	// silent is an error that nothing is said about while the server runs.
	silent bool
}

// tried returns the errors to run: all of them, or with -short the first of each pair of outcomes, which tells most.
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

// The lines of the document between which the table stands.
const (
	tableBegins = "<!-- The table is made of the rows of deploy/e2e/failclosed, whose test compares them. -->\n"
	tableEnds   = "<!-- The table ends. -->\n"
)

// atStart, atRestart and whileRunning return the words of the document.
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

// TestDocument: the document says what the rows say.
func TestDocument(t *testing.T) {
	got, err := os.ReadFile(os.Getenv(documentVar))
	must.Succeed(t, err)
	want, err := withTable(got)
	must.Succeed(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not say what the rows say: go test ./deploy/e2e/failclosed -run TestDocument -args -update", document)
	}
}
