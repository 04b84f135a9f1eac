package analysis

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Each analyzer that gives advice has a file of cases: objects, and the findings of that analyzer that follow. Several
// of them are mistakes, and several are none. Others may have such a file too.
func TestAnalyzers(t *testing.T) {
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	// settings has mesh configurations by the beginning of the names of cases.
	settings := map[string]*mesh.Config{}
	for _, name := range []string{"allocated", "known", "own domain", "alias"} {
		settings[name] = mesh.Default()
	}
	settings["allocated"].DefaultConfig.ProxyMetadata = map[string]string{
		"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_META_DNS_AUTO_ALLOCATE": "true",
	}
	settings["known"].DefaultConfig.ProxyMetadata = map[string]string{selfDiscovery: "true"}
	settings["own domain"].TrustDomain = "ecp"
	settings["alias"].TrustDomain, settings["alias"].TrustDomainAliases = "ecp", []string{"cluster.local"}
	limits, found := mesh.Parse("mesh", []byte("serviceEntryVisibility: {applyToSidecars: true, defaultVisibility: NAMESPACE, policies: ["+
		"{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchLabels: {tier: open}}}]}, "+
		"{visibility: NONE, matchingRules: [{namespaceSelector: {matchLabels: {tier: shut}}}]}]}"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	settings["limited"] = limits
	names := map[string]bool{}
	references := map[string]string{ // which of codeReference are whose
		"namespaces": "there is no namespace", "egress-proxies": "egressProxy", "sidecar-hosts": "imports nothing",
	}
	for _, a := range Analyzers() {
		if names[a.Name] || len(a.Codes) == 0 || a.Reports == "" {
			t.Errorf("%s: not described, or there twice", a.Name)
		}
		names[a.Name] = true
		archive, err := txtar.ParseFile(filepath.Join("testdata", "analyzers", a.Name+".txt"))
		if !a.Advice && errors.Is(err, fs.ErrNotExist) { // TestRun and those beside it have their cases
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		mistakes := 0
		for _, c := range archive.Files {
			t.Run(a.Name+"/"+c.Name, func(t *testing.T) {
				var want []string
				for line := range strings.Lines(string(c.Data)) {
					if text, found := strings.CutPrefix(line, "#! "); found {
						want = append(want, strings.TrimSpace(text))
					}
				}
				if len(want) > 0 {
					mistakes++
				}
				objects := decode(t, string(c.Data))
				m := m
				if own := settings[strings.SplitN(c.Name, ": ", 2)[0]]; own != nil {
					m = own
				}
				options := Options{Domain: "cluster.local", Mesh: m, Advice: true, HTTP3: true,
					Whole: strings.HasPrefix(c.Name, "files: "), ScopedGateways: strings.HasPrefix(c.Name, "scoped: "),
					PersistentSessions: strings.HasPrefix(c.Name, "sessions: ")}
				options.MultiCluster.Discovery = !strings.HasPrefix(c.Name, "off: ")
				options.MultiCluster.Hosts = options.MultiCluster.Discovery && !strings.HasPrefix(c.Name, "no hosts: ")
				var got []string
				for _, d := range Run(objects, options) {
					if d.File = ""; slices.Contains(a.Codes, d.Code) && (d.Code != codeReference || strings.Contains(d.String(), references[a.Name])) {
						if d.Fix == "" {
							t.Errorf("without a fix: %s", d)
						}
						got = append(got, d.String())
					}
				}
				slices.Sort(got)
				if !slices.EqualFunc(got, want, strings.HasPrefix) {
					t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				slices.Reverse(objects)
				again := map[string]bool{}
				for _, d := range Run(objects, options) {
					d.File = ""
					again[d.String()] = true
				}
				for _, text := range got {
					if !again[text] {
						t.Errorf("in another order of objects this is no finding: %s", text)
					}
				}
				for _, d := range Run(objects, Options{Domain: "cluster.local", Mesh: m}) {
					if a.Advice && slices.Contains(a.Codes, d.Code) && d.Code != codeReference {
						t.Errorf("advice that nobody asked for: %s", d)
					}
				}
			})
		}
		if mistakes < 2 || len(archive.Files)-mistakes < 2 {
			t.Errorf("%s has %d cases with a mistake and %d without", a.Name, mistakes, len(archive.Files)-mistakes)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "analyzers"))
	must.Succeed(t, err)
	for _, f := range files {
		if !names[strings.TrimSuffix(f.Name(), ".txt")] {
			t.Errorf("%s is of no analyzer", f.Name())
		}
	}
}

// What is right by TestRun draws no advice but about ports that are left open.
func TestAdviceOnWhatIsRight(t *testing.T) {
	data, err := os.ReadFile("testdata/right.yaml")
	must.Succeed(t, err)
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	for _, d := range Run(decode(t, string(bytes.TrimSpace(data))), Options{Domain: "cluster.local", Mesh: m, Advice: true}) {
		switch d.Code {
		case codePortRequired, codePortName:
		default:
			t.Error(d)
		}
	}
}

// TestHTTP3ProxyHeaders: where the mesh asks for PROXY headers, a finding says that none comes over QUIC.
func TestHTTP3ProxyHeaders(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "analyzers", "http3.txt"))
	must.Succeed(t, err)
	m, found := mesh.Parse("mesh.yaml", []byte("defaultConfig: {gatewayTopology: {proxyProtocol: {}}}"))
	if m == nil {
		t.Fatal(found)
	}
	got := map[string]int{}
	for _, d := range Run(decode(t, string(archive.Files[0].Data)), Options{Domain: "cluster.local", Mesh: m, Advice: true, HTTP3: true}) {
		if d.Code == codeHTTP3 {
			got[d.Field+" "+d.Severity.String()]++
		}
	}
	if want := map[string]int{"spec.servers[0].port.number info": 1, "spec.servers[1].port.number info": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
