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
	"sync/atomic"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// within is the limit of a wait. It is far more than a busy machine needs.
const within = 2 * time.Minute

// markerName is the prefix of the objects by which a test learns that a proxy has the newest state.
const markerName = "marker-"

// group runs rows one after the other, with the same witnesses and one server at a time, at the same addresses.
type group struct {
	ctx     context.Context
	dir     string // of the server; mesh is its directory of YAML
	options controlplane.Options
	http    string
	grpc    string
	node    proxy.Node
	envoy   envoyWitness
	client  *client
	server  *controlplane.Process // nil if none runs
	// write writes objects to the server's source, in a file with that name if the source is a directory.
	write func(t *testing.T, name, yaml string)
	// put sets the content of the input, and remove removes the input.
	put    func(t *testing.T, r row, text string)
	remove func(t *testing.T, r row)
	// heal ends errors that are not in the content of the input.
	heal      func()
	markers   int
	logOffset int64 // where the log about the present error begins
}

// groups is the number of groups so far. It determines the address of each.
var groups atomic.Int32

// asGateway makes the node of a group a gateway.
func asGateway(n *proxy.Node) {
	n.Type, n.Name, n.ServiceAccount, n.Interception, n.Labels = node.Router, "gateway-1", "gateway", "", map[string]string{"app": "gateway"}
}

// newServer returns a group without witnesses. The functions change its node first.
func newServer(t *testing.T, change ...func(*proxy.Node)) *group {
	t.Helper()
	g := &group{ctx: t.Context(), dir: t.TempDir(), heal: func() {}}
	suite.LogTails(t, g.dir)
	host := network.Gateway().String()
	g.http, g.grpc = freeAddress("127.0.0.1"), freeAddress(host)
	g.options = controlplane.Options{
		Binary: "/proc/self/exe", ConfigDir: filepath.Join(g.dir, "mesh"), Host: host, WorkDir: g.dir,
		Env: []string{launchVar + "=" + os.Getenv(suite.PilotVar), "PILOT_DEBOUNCE_AFTER=20ms"},
	}
	g.node = proxy.Node{
		Type: node.Sidecar, Addr: netip.AddrFrom4([4]byte{10, 10, 0, 10 + byte(groups.Add(1))}), Name: "web-1", Namespace: "a", Workload: "web",
		ServiceAccount: "web", Labels: map[string]string{"app": "web"}, Interception: node.Redirect, Network: "net1",
	}
	for _, f := range change {
		f(&g.node)
	}
	g.write = func(t *testing.T, name, yaml string) {
		t.Helper()
		suite.Write(t, filepath.Join(g.dir, "mesh", name), g.placed(yaml))
	}
	g.put = func(t *testing.T, r row, text string) { t.Helper(); suite.Write(t, g.file(r), g.placed(text)) }
	g.remove = func(t *testing.T, r row) { t.Helper(); must.Succeed(t, os.RemoveAll(g.file(r))) }
	t.Cleanup(g.stop)
	return g
}

// newGroup returns a group with its witnesses. The functions change their node first.
func newGroup(t *testing.T, change ...func(*proxy.Node)) *group {
	t.Helper()
	g := newServer(t, change...)
	g.envoy = startEnvoy(t, g.node, g.grpc, g.dir)
	g.client = connect(t, g.grpc, g.node.Message())
	return g
}

// ports is the number of ports that groups have used.
var ports atomic.Int32

// freeAddress returns an address that no other program uses. The tests have their own network, in which all other ports
// are above 20000.
func freeAddress(host string) string { return net.JoinHostPort(host, fmt.Sprint(10000+ports.Add(1))) }

// run runs the errors of a row. A server that survives an error gets the good input again, and then the next error.
func (g *group) run(t *testing.T, r row) {
	var before posture
	for i, f := range r.tried() {
		t.Run(f.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					g.stop()
				}
			}()
			if before != nil && g.server != nil {
				g.mend(t, r, before)
			} else {
				g.client.hold(nil)
				g.begin(t, r)
				before = g.baseline(t)
			}
			if i == 0 && f.start != held {
				g.seesOpen(t, r, before)
			}
			g.breaks(t, r, f)
			g.whileRunning(t, f, before)
			g.restarted(t, r, f, before)
		})
	}
}

// mend restores the good input, and waits until everything is as before.
func (g *group) mend(t *testing.T, r row, before posture) {
	t.Helper()
	g.heal()
	g.put(t, r, r.good)
	g.settle(t, before)
	g.skipLog()
}

// settle waits until each witness has exactly what before has.
func (g *group) settle(t *testing.T, before posture) {
	t.Helper()
	for _, w := range g.witnesses() {
		var diff []string
		g.eventuallyOr(t, fmt.Sprintf("%s has what a new proxy gets", w), func() bool {
			now := g.posture(t, w)
			diff = slices.Concat(now.moreOpen(before), before.moreOpen(now))
			return len(diff) == 0
		}, func() string { return strings.Join(diff, "\n") })
	}
}

// witnesses returns the proxies that stay connected.
func (g *group) witnesses() []witness { return []witness{g.envoy, g.client} }

// begin starts a server with the good input.
func (g *group) begin(t *testing.T, r row) {
	t.Helper()
	g.stop()
	g.heal()
	must.Succeed(t, os.RemoveAll(filepath.Join(g.dir, "mesh")))
	must.Succeed(t, os.MkdirAll(filepath.Join(g.dir, "mesh"), 0o755))
	g.write(t, "world.yaml", g.world()+r.world)
	for name, content := range r.files {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(g.dir, name)), 0o755))
		suite.Write(t, filepath.Join(g.dir, name), content)
	}
	g.remove(t, r)
	must.Succeed(t, os.MkdirAll(filepath.Dir(g.file(r)), 0o755))
	g.put(t, r, r.good)
	g.mark(t)
	g.starts(t, r)
}

// starts starts the server, which must become ready.
func (g *group) starts(t *testing.T, r row) {
	t.Helper()
	if ready, said := g.start(t, r, nil); !ready {
		t.Fatalf("the server is not ready: %s", said)
	}
}

// baseline waits until the witnesses have the configuration of a new proxy, and returns its posture. From then on,
// nothing may open.
func (g *group) baseline(t *testing.T) posture {
	t.Helper()
	// A connected proxy removes resources that it no longer needs last.
	fresh := connect(t, g.grpc, g.node.Message())
	g.synced(t, g.envoy, g.client, fresh)
	before := g.posture(t, fresh)
	g.settle(t, before)
	g.client.hold(before)
	return before
}

// seesOpen checks that the witness notices if the input is not in force.
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
	for _, w := range g.witnesses() {
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

// whileRunning checks how a running server handles the error.
func (g *group) whileRunning(t *testing.T, f fault, before posture) {
	t.Helper()
	if !f.silent {
		g.says(t, f)
	}
	g.mark(t)
	g.synced(t, g.envoy, g.client)
	for _, w := range g.witnesses() {
		g.check(t, "while running", f.running, w, before)
	}
}

// restarted checks how a server handles the error at its start, for connected proxies and for a new one.
func (g *group) restarted(t *testing.T, r row, f fault, before posture) {
	t.Helper()
	g.stop()
	g.mark(t)
	said := regexp.MustCompile(f.said)
	if f.start == refused {
		if g.refuses(t, r, f); g.server != nil {
			g.synced(t, g.envoy, g.client)
		}
		for _, w := range g.witnesses() {
			g.check(t, "at a restart", kept, w, before)
		}
		return
	}
	g.starts(t, r)
	fresh := connect(t, g.grpc, g.node.Message())
	if f.start == held {
		g.synced(t, fresh)
		g.says(t, f)
		g.check(t, "at a first start", closed, fresh, before)
		for _, w := range g.witnesses() {
			g.check(t, "at a restart", kept, w, before)
		}
		g.mend(t, r, before)
		g.synced(t, g.envoy, g.client, fresh)
		g.check(t, "once the cluster has been read", kept, fresh, before)
		return
	}
	g.synced(t, g.envoy, g.client, fresh)
	for _, w := range g.witnesses() {
		g.check(t, "at a restart", f.start, w, before)
	}
	g.check(t, "at a first start", f.start, fresh, before)
	if f.said != "" && !said.MatchString(g.findings()) && !said.MatchString(g.log(t)) {
		t.Errorf("the server does not say %s: %s", f.said, g.findings())
	}
}

// witness is a proxy that reports its configuration.
type witness interface {
	fmt.Stringer
	view(context.Context) (view, error)
}

// check compares the present posture of a witness with its earlier one.
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
	must.Succeed(t, err)
	return postureOf(v)
}

// start starts the server. If refusal is nil, it waits until the server is ready or has ended. Otherwise the wait also
// ends when the readiness probe matches refusal. It returns the output of a server that is not ready.
func (g *group) start(t *testing.T, r row, refusal *regexp.Regexp) (ready bool, said string) {
	t.Helper()
	done, cancel := g.launch(t, r)
	defer cancel()
	for {
		var again <-chan time.Time // nil if only the end of the start matters
		if refusal != nil && said == "" {
			again = time.After(20 * time.Millisecond)
		}
		select {
		case s := <-done:
			if s.err == nil {
				g.server = s.p
				return true, ""
			}
			return false, cmp.Or(said, g.log(t))
		case <-again:
			if _, body := fetch(g.http, "/ready"); refusal.MatchString(body) {
				said = body
				cancel()
			}
		}
	}
}

// started is the result of a start of the server.
type started struct {
	p   *controlplane.Process
	err error
}

// refuses starts the server, and checks that it does not become ready and reports the reason.
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

// launch starts the server. The returned function ends a server that is not ready yet.
func (g *group) launch(t *testing.T, r row) (<-chan started, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, within)
	o := g.options
	o.Args = []string{"--httpAddr", g.http, "--grpcAddr", g.grpc}
	if r.args != nil {
		o.Args = append(o.Args, r.args(g.dir)...)
	}
	g.skipLog()
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

// skipLog makes log leave out what the server has logged so far.
func (g *group) skipLog() {
	if info, err := os.Stat(filepath.Join(g.dir, "pilot-discovery.log")); err == nil {
		g.logOffset = info.Size()
	}
}

// log returns what the server has logged since the last call of skipLog. Each start calls it.
func (g *group) log(t *testing.T) string {
	t.Helper()
	f, err := os.Open(filepath.Join(g.dir, "pilot-discovery.log"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must.Succeed(t, err)
	defer f.Close()
	_, err = f.Seek(g.logOffset, io.SeekStart)
	must.Succeed(t, err)
	b, err := io.ReadAll(f)
	must.Succeed(t, err)
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

// placed replaces DIR by the folder of the server.
func (g *group) placed(text string) string { return strings.ReplaceAll(text, "DIR", g.dir) }

// mark writes the next marker: a cluster, a listener and a virtual host for sidecars and gateways, in a file without
// errors.
func (g *group) mark(t *testing.T) {
	t.Helper()
	g.markers++
	g.write(t, "marker.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s%[2]d, namespace: a}
spec:
  hosts: [%[1]s%[2]d.example]
  addresses: [10.99.0.%[2]d]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: %[3]d, name: tcp, protocol: TCP}]
  endpoints: [{address: 192.0.2.1}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %[1]s%[2]d, namespace: a}
spec: {selector: {app: gateway}, servers: [{port: {number: %[4]d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s%[2]d, namespace: a}
spec:
  gateways: [%[1]s%[2]d]
  hosts: [%[1]s%[2]d.example]
  http: [{route: [{destination: {host: %[1]s%[2]d.example, port: {number: 80}}}]}]
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

// eventuallyOr waits until ok. After a timeout, explain adds to the error.
func (g *group) eventuallyOr(t *testing.T, what string, ok func() bool, explain func() string) {
	t.Helper()
	pause := 10 * time.Millisecond
	for end := time.Now().Add(within); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %s", within, what, explain())
		}
		pause = min(2*pause, 160*time.Millisecond) // Envoy formats its whole state for each request
	}
}

// world has the objects that each row needs: the witness, and a service that it calls.
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
