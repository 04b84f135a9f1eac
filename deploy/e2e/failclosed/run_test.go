package failclosed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// within bounds every wait. It says nothing about how long anything may take.
const within = 20 * time.Second

// markerName begins the names of the objects by which a test learns that a proxy has the newest state.
const markerName = "marker-"

// group runs rows one after the other, with the same witnesses and one server at a time, at the same addresses.
type group struct {
	ctx     context.Context
	dir     string // of the server: mesh is its directory of YAML
	options controlplane.Options
	http    string
	grpc    string
	node    proxy.Node
	envoy   envoyWitness
	client  *client
	server  *controlplane.Process // nil: there is none
	// write puts objects where the server reads them, in the file of that name if it reads a directory.
	write func(t *testing.T, name, yaml string)
	// put makes a text the content of the input, and remove removes the input.
	put       func(t *testing.T, r row, text string)
	remove    func(t *testing.T, r row)
	markers   int
	logOffset int64
}

// newGroup starts the witnesses of a group, whose node the functions change first. index makes its addresses its own.
func newGroup(t *testing.T, index int, gateway bool, change ...func(*proxy.Node)) *group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	g := &group{ctx: ctx, dir: t.TempDir()}
	suite.LogTails(t, g.dir)
	host := network.Gateway().String()
	for _, a := range []struct {
		host string
		to   *string
	}{{"127.0.0.1", &g.http}, {host, &g.grpc}} {
		port, err := cluster.FreePort(ctx, a.host)
		if err != nil {
			t.Fatal(err)
		}
		*a.to = net.JoinHostPort(a.host, port)
	}
	g.options = controlplane.Options{
		Binary: "/proc/self/exe", ConfigDir: filepath.Join(g.dir, "mesh"), Host: host, WorkDir: g.dir,
		Env: []string{launchVar + "=" + os.Getenv(suite.PilotVar), "PILOT_DEBOUNCE_AFTER=20ms"},
	}
	g.node = proxy.Node{
		Type: node.Sidecar, Addr: netip.MustParseAddr(fmt.Sprintf("10.10.0.%d", 10+index)), Name: "web-1", Namespace: "a", Workload: "web",
		ServiceAccount: "web", Labels: map[string]string{"app": "web"}, Interception: node.Redirect, Network: "net1",
	}
	if gateway {
		g.node.Type, g.node.Name, g.node.ServiceAccount, g.node.Interception = node.Router, "gateway-1", "gateway", ""
		g.node.Labels = map[string]string{"app": "gateway"}
	}
	for _, f := range change {
		f(&g.node)
	}
	g.write = func(t *testing.T, name, yaml string) {
		t.Helper()
		suite.Write(t, filepath.Join(g.dir, "mesh", name), g.placed(yaml))
	}
	g.put = func(t *testing.T, r row, text string) { t.Helper(); suite.Write(t, g.file(r), g.placed(text)) }
	g.remove = func(t *testing.T, r row) { t.Helper(); must(t, os.RemoveAll(g.file(r))) }
	g.envoy = startEnvoy(t, g.node, g.grpc, g.dir)
	g.client = connect(t, g.grpc, g.node.Message())
	t.Cleanup(g.stop)
	return g
}

// run runs all errors of a row.
func (g *group) run(t *testing.T, r row) {
	for i, f := range r.errors {
		t.Run(f.name, func(t *testing.T) {
			before := g.begin(t, r)
			if i == 0 {
				g.seesOpen(t, r, before)
			}
			g.breaks(t, r, f)
			g.whileRunning(t, f, before)
			g.restarted(t, r, f, before)
		})
	}
}

// begin starts a server with the good input, and returns the posture of the witnesses.
func (g *group) begin(t *testing.T, r row) posture {
	t.Helper()
	g.client.hold(nil)
	g.stop()
	must(t, os.RemoveAll(filepath.Join(g.dir, "mesh")))
	must(t, os.MkdirAll(filepath.Join(g.dir, "mesh"), 0o755))
	g.write(t, "world.yaml", g.world()+r.world)
	for name, content := range r.files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(g.dir, name)), 0o755))
		suite.Write(t, filepath.Join(g.dir, name), content)
	}
	g.remove(t, r)
	must(t, os.MkdirAll(filepath.Dir(g.file(r)), 0o755))
	g.put(t, r, r.good)
	return g.serve(t, r)
}

// serve starts the server, and returns the posture of the witnesses. From then on, nothing may open.
func (g *group) serve(t *testing.T, r row) posture {
	t.Helper()
	g.mark(t)
	if ready, said := g.start(t, r, nil); !ready {
		t.Fatalf("a server with the good input is not ready: %s", said)
	}
	// A proxy that stays connected loses what it does not need any more last of all.
	fresh := connect(t, g.grpc, g.node.Message())
	g.synced(t, g.envoy, g.client, fresh)
	before := g.posture(t, fresh)
	for _, w := range []witness{g.envoy, g.client} {
		var diff []string
		g.eventuallyOr(t, fmt.Sprintf("%s has what a new proxy gets", w), func() bool {
			now := g.posture(t, w)
			diff = slices.Concat(now.moreOpen(before), before.moreOpen(now))
			return len(diff) == 0
		}, func() string { return strings.Join(diff, "\n") })
	}
	g.client.hold(before)
	return before
}

// seesOpen checks that the witness would see it if the input were not in force.
func (g *group) seesOpen(t *testing.T, r row, before posture) {
	t.Helper()
	g.client.hold(nil)
	if r.open == "" {
		g.remove(t, r)
	} else {
		g.put(t, r, r.open)
	}
	g.eventuallyOr(t, "the proxy opens without the input", func() bool { return len(g.posture(t, g.envoy).moreOpen(before)) > 0 },
		func() string {
			return fmt.Sprintf("it has %v\n%s", g.posture(t, g.envoy), g.findings())
		})
	g.put(t, r, r.good)
	g.closesAgain(t, before)
}

// closesAgain waits until no witness is more open than before.
func (g *group) closesAgain(t *testing.T, before posture) {
	t.Helper()
	for _, w := range []witness{g.envoy, g.client} {
		var opened []string
		g.eventuallyOr(t, fmt.Sprintf("%s closes again", w), func() bool {
			opened = g.posture(t, w).moreOpen(before)
			return len(opened) == 0
		}, func() string { return strings.Join(opened, "\n") })
	}
	g.client.hold(before)
}

func (g *group) breaks(t *testing.T, r row, f fault) {
	t.Helper()
	if f.spoil != nil {
		f.spoil(t, g.file(r))
		return
	}
	g.put(t, r, f.content)
}

// whileRunning checks what a server that runs makes of the error.
func (g *group) whileRunning(t *testing.T, f fault, before posture) {
	t.Helper()
	if !f.silent {
		g.says(t, f)
	}
	g.mark(t)
	g.synced(t, g.envoy, g.client)
	for _, w := range []witness{g.envoy, g.client} {
		g.check(t, "while running", f.running, w, before)
	}
}

// restarted checks what a server makes of the error at its start: for proxies that are connected, and for a new one.
func (g *group) restarted(t *testing.T, r row, f fault, before posture) {
	t.Helper()
	g.stop()
	g.mark(t)
	said := regexp.MustCompile(f.said)
	if f.start == refused {
		if g.refuses(t, r, f); g.server != nil {
			g.synced(t, g.envoy, g.client)
		}
		for _, w := range []witness{g.envoy, g.client} {
			g.check(t, "at a restart", kept, w, before)
		}
		return
	}
	if ready, words := g.start(t, r, nil); !ready {
		t.Errorf("the server is not ready: %s", words)
		return
	}
	fresh := connect(t, g.grpc, g.node.Message())
	g.synced(t, g.envoy, g.client, fresh)
	for _, w := range []witness{g.envoy, g.client} {
		g.check(t, "at a restart", f.start, w, before)
	}
	g.check(t, "at a first start", f.start, fresh, before)
	if f.said != "" && !said.MatchString(g.findings()) && !said.MatchString(g.log(t)) {
		t.Errorf("the server does not say %s: %s", f.said, g.findings())
	}
}

// witness is a proxy that tells what it has.
type witness interface {
	fmt.Stringer
	view(context.Context) (view, error)
}

// check compares what a witness has now with what it had.
func (g *group) check(t *testing.T, when string, o outcome, w witness, before posture) {
	t.Helper()
	now := g.posture(t, w)
	if opened := now.moreOpen(before); len(opened) > 0 {
		t.Errorf("%s: %s is more open than before:\n  %s", when, w, strings.Join(opened, "\n  "))
	}
	if lost := before.moreOpen(now); o != closed && o != both && len(lost) > 0 {
		t.Errorf("%s: %s has lost what was not wrong:\n  %s", when, w, strings.Join(lost, "\n  "))
	}
	if opened := g.client.hold(before); len(opened) > 0 {
		t.Errorf("%s: on the way, %s was sent something more open:\n  %s", when, g.client, strings.Join(opened, "\n  "))
	}
	if n, err := g.envoy.rejected(g.ctx); err != nil || n > 0 {
		t.Errorf("%s: %s has rejected %d updates (%v)", when, g.envoy, n, err)
	}
}

func (g *group) posture(t *testing.T, w witness) posture {
	t.Helper()
	v, err := w.view(g.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return postureOf(v)
}

// start starts the server. If refusal is nil, it waits until the server is ready or has ended. Else it also ends the
// wait when the readiness probe says what refusal matches. It returns what the server said if it is not ready.
func (g *group) start(t *testing.T, r row, refusal *regexp.Regexp) (ready bool, said string) {
	t.Helper()
	done, cancel := g.launch(t, r)
	defer cancel()
	for {
		select {
		case s := <-done:
			if s.err == nil {
				g.server = s.p
				return true, ""
			}
			if said == "" {
				said = g.log(t)
			}
			return false, said
		case <-time.After(10 * time.Millisecond):
			if _, body := fetch(g.http, "/ready"); refusal != nil && refusal.MatchString(body) && said == "" {
				said = body
				cancel()
			}
		}
	}
}

// started is how the start of a server went.
type started struct {
	p   *controlplane.Process
	err error
}

// refuses starts the server, and checks that it does not become ready and says why.
func (g *group) refuses(t *testing.T, r row, f fault) {
	t.Helper()
	said := regexp.MustCompile(f.said)
	ready, words := g.start(t, r, regexp.MustCompile(cmp.Or(f.waits, f.said)))
	if ready {
		t.Errorf("the server is ready, and should say %s", f.said)
	} else if log := g.log(t); !said.MatchString(words) && !said.MatchString(log) {
		t.Errorf("the server says %s, not %s:\n%s", words, f.said, log)
	}
}

// launch starts the server. The function that it returns ends a server that is not ready yet.
func (g *group) launch(t *testing.T, r row) (<-chan started, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, within)
	o := g.options
	o.Args = []string{"--httpAddr", g.http, "--grpcAddr", g.grpc}
	if r.args != nil {
		o.Args = append(o.Args, r.args(g.dir)...)
	}
	if info, err := os.Stat(filepath.Join(g.dir, "pilot-discovery.log")); err == nil {
		g.logOffset = info.Size()
	}
	done := make(chan started, 1)
	go func() {
		p, err := controlplane.Start(ctx, o)
		done <- started{p, err}
	}()
	return done, cancel
}

func (g *group) stop() {
	if g.server != nil {
		g.server.Kill()
		g.server = nil
	}
}

// log returns what the server has logged since it was started last.
func (g *group) log(t *testing.T) string {
	t.Helper()
	f, err := os.Open(filepath.Join(g.dir, "pilot-discovery.log"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must(t, err)
	defer f.Close()
	_, err = f.Seek(g.logOffset, io.SeekStart)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, err)
	return string(b)
}

func (g *group) findings() string {
	_, body := fetch(g.http, "/debug/findings")
	return body
}

func fetch(address, path string) (int, string) {
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

// placed puts the folder of the server in the place of DIR.
func (g *group) placed(text string) string { return strings.ReplaceAll(text, "DIR", g.dir) }

// mark writes the next marker: a cluster, a listener and a virtual host for sidecars and for gateways, in a file that
// nothing breaks.
func (g *group) mark(t *testing.T) {
	t.Helper()
	g.markers++
	g.write(t, "marker.yaml", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s%[2]d, namespace: a}
spec: {clusterIP: 10.99.0.%[2]d, ports: [{name: http, port: 80}, {name: tcp, port: %[3]d}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %[1]s%[2]d, namespace: a}
spec: {selector: {app: gateway}, servers: [{port: {number: %[4]d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s%[2]d, namespace: a}
spec: {gateways: [%[1]s%[2]d], hosts: [%[1]s%[2]d.example], http: [{route: [{destination: {host: %[1]s%[2]d, port: {number: 80}}}]}]}
`, markerName, g.markers, 20000+g.markers, 21000+g.markers))
}

// synced waits until the witnesses have the last marker.
func (g *group) synced(t *testing.T, list ...witness) {
	t.Helper()
	for _, w := range list {
		g.eventually(t, fmt.Sprintf("%s has the newest state", w), func() bool {
			v, err := w.view(g.ctx)
			return err == nil && g.hasMarker(v)
		})
	}
}

func (g *group) hasMarker(v view) bool {
	name, port := fmt.Sprintf("%s%d.", markerName, g.markers), 20000+g.markers
	if g.node.Type == node.Router {
		port += 1000
	}
	has := func(typ, part string, in func(name string, resource any) string) bool {
		for n, r := range v[typ] {
			if strings.Contains(in(n, r), part) {
				return true
			}
		}
		return false
	}
	byName := func(name string, _ any) string { return name }
	return has("cds", name, byName) && has("lds", fmt.Sprintf("_%d", port), byName) &&
		has("rds", name, func(_ string, r any) string { return text(r) })
}

func (g *group) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	g.eventuallyOr(t, what, ok, g.findings)
}

// eventuallyOr waits until ok. If that takes too long, explain says what else to tell.
func (g *group) eventuallyOr(t *testing.T, what string, ok func() bool, explain func() string) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %s", within, what, explain())
		}
	}
}

// world has what each row needs: the witness, and a service that it calls.
func (g *group) world() string {
	app := g.node.Labels["app"]
	annotations := ""
	if app == "gateway" {
		annotations = ", annotations: {inject.istio.io/templates: gateway}"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: a, labels: {app: %[2]s, topology.istio.io/network: net1, security.istio.io/tlsMode: istio}%[4]s}
spec: {serviceAccountName: %[2]s, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: a}
spec: {clusterIP: 10.98.0.1, selector: {app: %[2]s}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: pay, namespace: a}
spec: {clusterIP: 10.98.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: b}
spec: {clusterIP: 10.98.0.3, ports: [{name: http, port: 80}]}
---
`, g.node.Name, app, g.node.Addr, annotations)
}

func (g *group) file(r row) string {
	if r.file == "" {
		return filepath.Join(g.dir, "mesh", "input.yaml")
	}
	return filepath.Join(g.dir, r.file)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
