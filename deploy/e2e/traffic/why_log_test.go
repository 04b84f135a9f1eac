package traffic

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	meshconfig "github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// logHeaders are the headers that routes and policies of the tests read.
const logHeaders = ` "%REQ(X-USER)%" "%REQ(X-DENIED)%" "%REQ(AUTHORIZATION)%" "%REQ(ORIGIN)%" "%REQ(ACCESS-CONTROL-REQUEST-METHOD)%"`

// loggingTo returns a mesh configuration whose proxies write access logs to a new file, in a format of the mesh's own.
func loggingTo(t *testing.T) (file, config string) {
	file = filepath.Join(t.TempDir(), "access.log")
	return file, "accessLogFile: " + file + "\naccessLogFormat: '" + strings.TrimSpace(meshconfig.LogText) + logHeaders + "'\n"
}

// tokenGone reports whether routes decide by a token of which the line has nothing, because the proxy has taken the
// header away.
func tokenGone(way *inspect.Way) bool {
	return slices.ContainsFunc(way.Log.Notes, func(s string) bool { return strings.HasPrefix(s, "the line does not have all headers") }) &&
		(strings.HasPrefix(way.Log.Path, "/claimed") || strings.HasPrefix(way.Log.Path, "/scoped"))
}

// explainLines checks that why --log finds the request of each line of a file, and that the configuration explains each
// answer of a proxy itself. It expects at least one line for each of some response flags and details.
func explainLines(t *testing.T, i *inspect.Inspection, file string, expected ...string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing is written
	seen := map[string]bool{}
	lines, failed := 0, 0
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		line := scanner.Text()
		if line == "" {
			continue
		}
		lines++
		for _, e := range expected {
			if strings.Contains(line, e) {
				seen[e] = true
			}
		}
		if explainLine(t, i, line) {
			failed++
		}
	}
	for _, e := range expected {
		if !seen[e] {
			t.Errorf("no line has %s", e)
		}
	}
	t.Logf("%d lines, %d of failures", lines, failed)
}

// explainLine checks what why --log says of a line, and reports whether the line shows a failure.
func explainLine(t *testing.T, i *inspect.Inspection, line string) (failed bool) {
	t.Helper()
	way, err := i.Why(inspect.Query{Log: line})
	switch {
	case err != nil:
		t.Errorf("%s: %v", line, err)
	case len(way.Log.Missing) > 0:
		if !strings.Contains(way.Log.Missing[0], "called") && !strings.Contains(way.Log.Missing[0], "X-Forwarded-For") {
			t.Errorf("%s: %q", line, way.Log.Missing)
		}
	case strings.HasPrefix(way.Log.Verdict, "The line has no request"):
	case way.Log.Failed:
		if !way.Log.Explained && !(tokenGone(way) && strings.Contains(line, " direct_response ")) {
			t.Errorf("%s\n%s: %s to %s: status %d: %s %q", line, way.Log.Verdict, way.Log.Source, way.Log.Target, way.Status, way.Reason,
				way.Log.Notes)
		}
		return true
	case !strings.HasPrefix(way.Log.Verdict, "The line shows no failure, and the request reaches"):
		t.Errorf("%s\n%s: %s to %s: status %d: %s", line, way.Log.Verdict, way.Log.Source, way.Log.Target, way.Status, way.Reason)
	}
	return false
}
