package xds

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestSession runs the transcripts in testdata. A line that begins with "> " is a command, the lines after it are its
// output; comments begin with #.
func TestSession(t *testing.T) {
	files, err := filepath.Glob("testdata/session/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			x := newTranscript(&got)
			for line := range strings.Lines(string(want)) {
				line = strings.TrimRight(line, "\n")
				switch {
				case strings.HasPrefix(line, "> "):
					fmt.Fprintln(&got, line)
					x.run(line[2:])
				case strings.HasPrefix(line, "#"), line == "":
					fmt.Fprintln(&got, line)
				}
			}
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

type transcript struct {
	out     *bytes.Buffer
	fake    *fakeTranslator
	latest  *push
	waiting *push
	session *session
	last    map[string]string
	manual  bool
}

func newTranscript(out *bytes.Buffer) *transcript {
	return &transcript{out: out, fake: newFakeTranslator()}
}

func (x *transcript) panicked(typeURL string, err error) { fmt.Fprintln(x.out, "panic", err) }
func (x *transcript) suppressed(typeURL string) {
	fmt.Fprintln(x.out, "suppressed", envoy.ShortType(typeURL))
}

func newTestSession(f *fakeTranslator, o observer, delta bool) *session {
	l := limits.Default()
	l.NamesPerRequest, l.NamesPerStream = 20, 30
	return &session{
		translator: f, observer: o, limits: &l, differences: &differences{}, interner: newNameInterner(), delta: delta, profile: &profile{grouped: true},
		proxy: &node.Proxy{ID: "web.a", Name: "web", Namespace: "a", Type: node.Sidecar},
	}
}

func (x *transcript) run(line string) {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "publish", "endpoints":
		x.offer(newPush(x.fake.publish(command == "publish", edits(rest)...), time.Unix(0, 0)))
	case "workload":
		f := strings.Fields(rest)
		p := newPush(x.fake.publish(false, edits(strings.Join(f[3:], " "))...), time.Unix(0, 0))
		kind := kinds.Pod
		if f[0] != "Pod" {
			kind = kinds.WorkloadEntry
		}
		p.workloads = []registry.WorkloadKey{{Kind: kind, Namespace: f[1], Name: f[2]}}
		x.offer(p)
	case "connect":
		x.session = newTestSession(x.fake, x, rest != "sotw")
		x.session.divided = rest == "vhds"
		x.last, x.waiting = map[string]string{}, nil
		if !x.session.start(x.latest.snapshot) {
			fmt.Fprintln(x.out, "cannot be served")
		}
	case "manual":
		x.manual = true
	case "auto":
		x.manual = false
		x.drain()
	case "next":
		if r := x.step(); r == nil {
			fmt.Fprintln(x.out, "idle")
		}
	case "rest":
		x.session.quiet()
		x.drain()
	case "has":
		if w := x.session.find(longType(rest)); w != nil {
			for _, r := range w.resources() {
				fmt.Fprintf(x.out, " %s=%s", r.Name, r.Version)
			}
		}
		fmt.Fprintln(x.out)
	default:
		x.request(command, strings.Fields(rest))
	}
}

func edits(s string) []string {
	if s = strings.TrimSpace(s); s == "" {
		return nil
	}
	list := strings.Split(s, ";")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func (x *transcript) offer(p *push) {
	x.latest = p
	x.waiting = x.waiting.merge(p)
	if x.session != nil && !x.manual {
		x.drain()
	}
}

func (x *transcript) drain() {
	for x.step() != nil {
	}
}

func (x *transcript) step() *Response {
	r := x.session.next()
	for r == nil && x.waiting != nil {
		x.session.adopt(x.waiting)
		x.waiting = nil
		r = x.session.next()
	}
	if r == nil {
		return nil
	}
	x.last[r.TypeURL] = r.Nonce
	fmt.Fprintf(x.out, "%s %s:", envoy.ShortType(r.TypeURL), r.Nonce)
	for i, res := range r.Resources {
		fmt.Fprintf(x.out, " %s=%s", res.Name, sentVersion(r, i))
	}
	for _, name := range r.Removed {
		fmt.Fprintf(x.out, " -%s", name)
	}
	fmt.Fprintln(x.out)
	return r
}

func (x *transcript) request(short string, args []string) {
	typeURL := longType(short)
	var names, add, remove []string
	var nonce string
	var detail *rpcstatus.Status
	versions := map[string]string{}
	for i, a := range args {
		key, value, pair := strings.Cut(a, "=")
		switch {
		case pair && key == "nonce":
			if nonce = value; value == "last" {
				nonce = x.last[typeURL]
			}
		case pair && key == "error":
			detail = &rpcstatus.Status{Code: 13, Message: strings.Join(append([]string{value}, args[i+1:]...), " ")}
		case pair && key == "init":
			name, version, _ := strings.Cut(value, ":")
			versions[name] = version
		case pair && key == "many":
			n, _ := strconv.Atoi(value)
			for i := range n {
				names, add = append(names, "m"+strconv.Itoa(i)), append(add, "m"+strconv.Itoa(i))
			}
		case a[0] == '+':
			add = append(add, a[1:])
		case a[0] == '-':
			remove = append(remove, a[1:])
		default:
			names = append(names, a)
		}
		if detail != nil {
			break
		}
	}
	var v verdict
	var err error
	if x.session.delta {
		v, err = ask(x.session, &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: typeURL, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove, InitialResourceVersions: versions, ResponseNonce: nonce, ErrorDetail: detail,
		})
	} else {
		v, err = ask(x.session, &discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce, ErrorDetail: detail})
	}
	if err != nil {
		fmt.Fprintln(x.out, "error:", err)
		return
	}
	switch v.kind {
	case acked:
		fmt.Fprintln(x.out, "ack")
	case rejected:
		fmt.Fprintf(x.out, "nack %v %s\n", v.code, v.message)
	case expired:
		fmt.Fprintln(x.out, "expired")
	}
	if !x.manual {
		x.drain()
	}
}

// sentVersion returns the version of a resource as the client is sent it.
func sentVersion(r *Response, i int) string {
	x, version := r.Resources[i], r.Resources[i].Version
	if r.Versions != nil {
		version = r.Versions[i]
	}
	if r.TypeURL == envoy.VirtualHostType {
		version = strings.Replace(version, envoy.Tombstone(x.Name).Version, tombstone, 1)
	}
	return version
}

// own returns a version without its generation.
func own(version string) string { v, _ := splitGeneration(version); return v }

const tombstone = "tombstone"
