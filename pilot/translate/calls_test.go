package translate_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

var updateCalls = flag.Bool("update-calls", false, "write what becomes of calls by what the real istiod sent")

// TestCalls follows calls through what the real istiod sent in a case of the reference, and through what is sent here:
// both lead to the same hosts, routes, clusters and endpoints, and answer alike.
//
// testdata/calls has a file for each case. A line without an indent is a call: who calls, METHOD, a URL, and words: "at
// ADDRESS" is where the connection goes, "tls NAME" that it is TLS of the application with that server name, "quic
// NAME" that it comes by HTTP/3, "from IDENTITY" that it arrives at the proxy over mutual TLS (or "from -", over
// plaintext), NAME=VALUE a header. The lines below it, with an indent, are what becomes of it. They are written from
// istiod's side alone: -update-calls.
func TestCalls(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	base := recorded(t, "00-none")
	cases := map[string]referenceCase{}
	for _, c := range referenceCases(t) {
		cases[c.name] = c
	}
	files, err := filepath.Glob("testdata/calls/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files of calls, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			c, ok := cases[name]
			if !ok {
				t.Fatal("there is no such case")
			}
			over := recorded(t, name)
			s, tr, nodes := c.world(t).apply(c.objects...), newTranslator(1<<20), referenceNodes(t, c)
			bound := func(r trace.Request) uint32 {
				for t := range tr.ResolveCohort(s, nodes["ingress"]).Client.Value().Targets.All {
					if t.Port == r.Port && t.UDP == r.HTTP3 {
						return t.TargetPort
					}
				}
				return r.Port
			}
			theirs := sideOf(func(who string) trace.Config {
				config := trace.Config{}
				for typ, url := range typesOfCalls {
					for _, r := range overlay(base[who][typ], over[who][typ]) {
						config[url] = append(config[url], fromJSON(t, r))
					}
				}
				return config
			})
			ours := sideOf(func(who string) trace.Config {
				config := trace.Config{}
				for typ, all := range sent(t, tr, s, nodes[who]) {
					for _, r := range all {
						config[typesOfCalls[typ]] = append(config[typesOfCalls[typ]], r)
					}
				}
				return config
			})
			want := string(read(t, file))
			if got := theirs.answered(t, want, bound); *updateCalls {
				must.Succeed(t, os.WriteFile(file, []byte(got), 0o600))
				want = got
			} else if got != want {
				t.Errorf("what istiod sent leads elsewhere than the file says:\n%s", got)
			}
			got := ours.answered(t, want, bound)
			if got == want {
				return
			}
			a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
			call := ""
			for i := range min(len(a), len(b)) {
				if !strings.HasPrefix(a[i], " ") {
					call = a[i]
				}
				if a[i] != b[i] {
					t.Fatalf("%s\n\tistiod: %s\n\there:   %s", call, a[i], b[i])
				}
			}
			t.Fatalf("%d lines from istiod, %d here", len(a), len(b))
		})
	}
}

var typesOfCalls = map[string]string{"cds": envoy.ClusterType, "eds": envoy.EndpointType, "lds": envoy.ListenerType, "rds": envoy.RouteType}

// fromJSON returns a resource as it was recorded. Filters of types that are Istio's own decide nothing.
func fromJSON(t *testing.T, v any) *envoy.Resource {
	t.Helper()
	b, err := json.Marshal(known(v))
	must.Succeed(t, err)
	var a anypb.Any
	if err := protojson.Unmarshal(b, &a); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	m, err := a.UnmarshalNew()
	must.Succeed(t, err)
	name, _ := v.(map[string]any)["name"].(string)
	if name == "" {
		name, _ = v.(map[string]any)["clusterName"].(string)
	}
	return envoy.NewResource(name, m)
}

// known returns JSON with empty messages in the place of those that are of no known type.
func known(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = known(x)
		}
		return out
	case map[string]any:
		if url, ok := v["@type"].(string); ok {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				return map[string]any{"@type": "type.googleapis.com/google.protobuf.Empty", "value": map[string]any{}}
			}
		}
		out := map[string]any{}
		for k, x := range v {
			out[k] = known(x)
		}
		return out
	}
	return v
}

// side is what one control plane sends, by the proxies that calls go through.
type side struct {
	config func(who string) trace.Config
	known  map[string]trace.Config
}

func sideOf(config func(who string) trace.Config) side {
	return side{config, map[string]trace.Config{}}
}

// answered returns the text of a file with what becomes of its calls. bound returns the port of a gateway to which its
// Service leads a call.
func (s side) answered(t *testing.T, text string, bound func(trace.Request) uint32) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		who, r := parseCall(t, line)
		if s.known[who] == nil {
			s.known[who] = s.config(who)
		}
		if r.Gateway && !r.Inbound {
			r.Port = bound(r)
		}
		a, err := trace.Follow(s.known[who], r)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, x := range outcome(a, r) {
			out.WriteString("  " + x + "\n")
		}
	}
	return out.String()
}

// parseCall reads a line of a file.
func parseCall(t *testing.T, line string) (string, trace.Request) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 3 {
		t.Fatalf("%q is no call", line)
	}
	who := words[0]
	scheme, rest, ok := strings.Cut(words[2], "://")
	if !ok {
		t.Fatalf("%q has no URL", line)
	}
	authority, path, _ := strings.Cut(rest, "/")
	r := trace.Request{Method: words[1], Authority: authority, Path: "/" + path, Port: 80, Headers: map[string]string{},
		Gateway: who == "ingress", SourceAddress: "10.1.0.99", Certificate: true}
	if scheme == "https" {
		r.TLS, r.Port = true, 443
	}
	if i := strings.LastIndexByte(authority, ':'); i > 0 {
		port, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		r.Port = uint32(port)
	}
	for words = words[3:]; len(words) > 0; words = words[1:] {
		name, value, isHeader := strings.Cut(words[0], "=")
		switch {
		case isHeader:
			r.Headers[strings.ToLower(name)] = value
			continue
		case len(words) < 2:
			t.Fatalf("%q: what is %s?", line, words[0])
		case name == "at":
			r.Address = words[1]
		case name == "tls":
			r.TLS, r.SNI, r.ALPN = true, words[1], []string{"h2", "http/1.1"}
		case name == "quic":
			r.HTTP3, r.TLS, r.SNI = true, true, words[1]
		case name == "from":
			if r.Inbound = true; words[1] != "-" {
				r.TLS, r.Identity, r.ALPN = true, words[1], []string{"istio"}
			}
		default:
			t.Fatalf("%q: what is %s?", line, words[0])
		}
		words = words[1:]
	}
	return who, r
}

// outcome says what becomes of a call, a line for each thing.
func outcome(a *trace.Answer, r trace.Request) []string {
	lines := []string{strconv.Itoa(a.Status)}
	if a.Status != 200 {
		lines[0] += " " + a.Reason
	}
	for _, s := range a.Steps {
		switch s.What {
		case "virtual host", "authorization", "listener":
			lines = append(lines, s.What+" "+s.Name)
		case "route":
			lines = append(lines, "route "+s.Name)
			for _, d := range s.Details {
				lines = append(lines, "  "+d)
			}
		}
	}
	if f := a.Forwarded; f.Authority != r.Authority || f.Path != r.Path {
		lines = append(lines, "passed on as "+f.Authority+f.Path)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Forwarded.Headers)) {
		if v := a.Forwarded.Headers[name]; v != r.Headers[name] && !strings.HasPrefix(name, "x-forwarded-") &&
			name != "x-envoy-external-address" {
			lines = append(lines, "header "+name+": "+v)
		}
	}
	for name := range r.Headers {
		if _, there := a.Forwarded.Headers[name]; !there {
			lines = append(lines, "header "+name+" is removed")
		}
	}
	for _, x := range a.Targets {
		text := fmt.Sprintf("%g %% to %s", x.Share, x.Cluster)
		if x.Original {
			text += ", where the connection was meant to go"
		}
		lines = append(lines, text)
		var ends []string
		for _, e := range x.Endpoints {
			ends = append(ends, "  "+e.String())
		}
		slices.Sort(ends)
		lines = append(lines, ends...)
	}
	return lines
}
