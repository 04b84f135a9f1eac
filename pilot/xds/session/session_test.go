package session

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
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
			must.Succeed(t, err)
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
				must.Succeed(t, os.WriteFile(file, got.Bytes(), 0o644))
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
	fake    *xdstest.Translator
	latest  *Push
	waiting *Push
	session *Session
	last    map[string]string
	manual  bool
	refused string // name of a secret that the client may not subscribe to
}

func newTranscript(out *bytes.Buffer) *transcript {
	return &transcript{out: out, fake: xdstest.NewTranslator()}
}

func (*transcript) StandIn(string) *envoy.Resource { return nil }

func (x *transcript) MayHave(name string) bool { return name != x.refused }

func (x *transcript) Panicked(typeURL string, err error) { fmt.Fprintln(x.out, "panic", err) }
func (x *transcript) Suppressed(typeURL string) {
	fmt.Fprintln(x.out, "suppressed", envoy.ShortType(typeURL))
}

func newTestSession(f *xdstest.Translator, o Observer, delta bool) *Session {
	l := limits.Default()
	l.NamesPerRequest, l.NamesPerStream = 20, 30
	return &Session{
		translator: f, observer: o, limits: &l, differences: &diff.Cache{},
		interner: wire.NewInterner(), delta: delta, profile: Profile{Grouped: true},
		proxy: &node.Proxy{ID: "web.a", Name: "web", Namespace: "a", Type: node.Sidecar},
	}
}

func (x *transcript) run(line string) {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "publish", "endpoints":
		x.offer(NewPush(x.fake.Publish(command == "publish", edits(rest)...), time.Unix(0, 0)))
	case "workload":
		f := strings.Fields(rest)
		p := NewPush(x.fake.Publish(false, edits(strings.Join(f[3:], " "))...), time.Unix(0, 0))
		kind := kinds.Pod
		if f[0] != "Pod" {
			kind = kinds.WorkloadEntry
		}
		p.Workloads = []registry.WorkloadKey{{Kind: kind, Namespace: f[1], Name: f[2]}}
		x.offer(p)
	case "connect":
		x.session = newTestSession(x.fake, x, true)
		x.session.divided, x.session.profile.Named = rest == "vhds", rest == "grpc"
		x.session.delta = rest != "sotw" && rest != "grpc"
		x.last, x.waiting = map[string]string{}, nil
		if !x.session.Start(x.latest.Snapshot) {
			fmt.Fprintln(x.out, "cannot be served")
		}
	case "refers":
		x.fake.Refers.Store(true)
		x.fake.Routes.Store(rest == "routes")
	case "refuse":
		x.refused = rest
	case "expect":
		x.session.Expect(rest == "resumes", rest != "guesses", time.Unix(1, 0))
	case "grant", "undecided":
		x.session.Guard()
		x.session.Grant(x.session.interner.Of(strings.Fields(rest)), true, command == "undecided")
		x.drain()
	case "manual":
		x.manual = true
	case "auto":
		x.manual = false
		x.drain()
	case "next":
		if r := x.step(); r == nil {
			fmt.Fprintln(x.out, "idle")
		}
	case "owes":
		for _, d := range x.session.Debts().Open(nil) {
			to := fmt.Sprint(d.To)
			if d.To == math.MaxUint64 {
				to = "now"
			}
			fmt.Fprintf(x.out, "owes %d-%s", d.From, to)
			if d.Rejected {
				fmt.Fprintf(x.out, " rejected %s: %s", d.Type, d.Message)
			} else if d.Why != "" {
				fmt.Fprintf(x.out, " awaits %s %s: %s", envoy.ShortType(d.Awaits.TypeURL), d.Awaits.Name, d.Why)
			}
			fmt.Fprintln(x.out)
		}
	case "rest":
		x.session.EndResuming()
		x.drain()
	case "has":
		if w := x.session.find(xdstest.LongType(rest)); w != nil {
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

func (x *transcript) offer(p *Push) {
	x.latest = p
	x.waiting = x.waiting.Merge(p)
	if x.session != nil && !x.manual {
		x.drain()
	}
}

func (x *transcript) drain() {
	for x.step() != nil {
	}
}

func (x *transcript) step() *wire.Response {
	r := x.session.Next()
	for r == nil && x.waiting != nil {
		x.session.Adopt(x.waiting)
		x.waiting = nil
		r = x.session.Next()
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
	typeURL := xdstest.LongType(short)
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
	var v Verdict
	var err error
	if x.session.delta {
		v, err = ask(x.session, &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: typeURL, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove,
			InitialResourceVersions: versions, ResponseNonce: nonce, ErrorDetail: detail,
		})
	} else {
		v, err = ask(x.session, &discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce, ErrorDetail: detail})
	}
	if err != nil {
		fmt.Fprintln(x.out, "error:", err)
		return
	}
	switch v.Kind {
	case Acked:
		fmt.Fprintln(x.out, "ack")
	case Rejected:
		fmt.Fprintf(x.out, "nack %v %s\n", v.Code, v.Message)
	case Expired:
		fmt.Fprintln(x.out, "expired")
	}
	if !x.manual {
		x.drain()
	}
}

// sentVersion returns the version of a resource as the client is sent it.
func sentVersion(r *wire.Response, i int) string {
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
func own(version string) string { v, _ := wire.SplitGeneration(version); return v }

const tombstone = "tombstone"

// TestSameTypesAreNotCompared checks that a session leaves out the types that a push leaves the same, and compares them
// if their last translation failed.
func TestSameTypesAreNotCompared(t *testing.T) {
	f := xdstest.NewTranslator()
	f.Still.Store(true)
	s := newTestSession(f, quiet{}, true)
	s.Start(f.Publish(true, "cds a=1", "lds l=1"))
	for _, url := range []string{envoy.ClusterType, envoy.ListenerType} {
		_, err := ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url})
		must.Succeed(t, err)
	}
	sent := func() (types []string) {
		for r := s.Next(); r != nil; r = s.Next() {
			types = append(types, envoy.ShortType(r.TypeURL))
		}
		return types
	}
	if got := sent(); !slices.Equal(got, []string{"cds", "lds"}) {
		t.Fatalf("sent at first: %v", got)
	}
	p := NewPush(f.Publish(true, "cds a=2", "lds l=2"), time.Unix(0, 0))
	p.Full, p.Same = true, Types(0).With(envoy.TypeOf(envoy.ClusterType))
	s.Adopt(p)
	if got := sent(); !slices.Equal(got, []string{"lds"}) {
		t.Errorf("sent of a push that leaves the clusters the same: %v", got)
	}
	s.find(envoy.ClusterType).failed = true
	s.Adopt(p)
	if got := sent(); !slices.Equal(got, []string{"cds"}) {
		t.Errorf("sent after a failure: %v", got)
	}
}
