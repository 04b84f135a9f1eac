package failclosed

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// crdsVar is the variable that names the folder of the custom resources.
const crdsVar = "E2E_CRDS"

// answer is what an API server says to lists and watches of one resource, in place of the objects.
type answer struct {
	name string
	faults.Rule
}

func answers() []answer {
	return []answer{
		{"403", faults.Rule{Status: http.StatusForbidden}},
		{"404", faults.Rule{Status: http.StatusNotFound}},
		{"500", faults.Rule{Status: http.StatusInternalServerError}},
		{"silence", faults.Rule{Delay: time.Hour}},
	}
}

// triedAnswers returns all answers, or those of the names with -short.
func triedAnswers(short ...string) []answer {
	return slices.DeleteFunc(answers(), func(a answer) bool { return testing.Short() && !slices.Contains(short, a.name) })
}

// resource is a resource of an API server.
type resource struct {
	kind  *kinds.Kind // nil: the definitions of kinds
	input string      // an object that closes something; without it, the proxy is open. Empty: an outage is all there is.
	spare string      // the answer with which a server can do without: it asks the API server in another way
}

func (r resource) name() string {
	if r.kind == nil {
		return "customresourcedefinitions"
	}
	return r.kind.Plural
}

// match chooses the lists and watches of the resource.
func (r resource) match() faults.Match {
	m := faults.Match{Verbs: []string{"list", "watch"}, Resource: r.name()}
	if r.kind != nil {
		m.Group = r.kind.Group
	}
	return m
}

// start is what becomes of a server that starts with an answer.
func (r resource) start(a answer) outcome {
	if r.spare == a.name {
		return whole
	}
	return refused
}

// inputs have an object for each kind that closes something by itself. All of them are there together.
func inputs() map[*kinds.Kind]string {
	return map[*kinds.Kind]string{
		kinds.AuthorizationPolicy:   policy,
		kinds.PeerAuthentication:    object(security, "PeerAuthentication", "{mtls: {mode: STRICT}}"),
		kinds.RequestAuthentication: object(security, "RequestAuthentication", "{jwtRules: ["+tokenRule()+"]}"),
		kinds.Sidecar:               object(networking, "Sidecar", `{egress: [{hosts: ["./*"]}]}`),
		kinds.DestinationRule:       object(networking, "DestinationRule", "{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}}}"),
		kinds.VirtualService:        object(networking, "VirtualService", "{hosts: [pay], http: ["+refusal+"]}"),
		kinds.EnvoyFilter:           object(networkingAlpha, "EnvoyFilter", "{configPatches: ["+denyPatch+"]}"),
		kinds.WasmPlugin:            wasm("file://DIR/x.wasm", "failStrategy: FAIL_CLOSE"),
		kinds.ConfigMap:             meshConfigMap("outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"),
	}
}

// resources are those that a server reads before it is ready, in the order of the document: the definitions come last.
func resources() (list []resource) {
	of := inputs()
	for _, k := range kinds.All() {
		if k.Plural != "" && !k.IsOptional() { // which this server does not read
			list = append(list, resource{kind: k, input: of[k]})
		}
	}
	return append(list, resource{spare: "403"})
}

// apiRows are the lines of the document: one for the kinds of each group.
func apiRows() (rows []row) {
	of := map[string]int{}
	for _, res := range resources() {
		group := ""
		if res.kind == nil {
			group = res.name()
		} else if strings.HasSuffix(res.kind.Group, ".istio.io") {
			group = "istio.io"
		} else if strings.HasPrefix(res.kind.Group, "gateway.") {
			group = res.kind.Group
		}
		i, known := of[group]
		if known {
			rows[i].input += ", " + res.name()
			continue
		}
		of[group] = len(rows)
		r := row{input: "an API server, asked for " + res.name()}
		for _, a := range answers() {
			r.errors = append(r.errors, fault{name: a.name, start: res.start(a), running: kept})
		}
		rows = append(rows, r)
	}
	return rows
}

// TestAPIServer has a real API server answer lists and watches of single resources with errors, or not at all.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	c, api := useAPIServer(t, g)
	g.write(t, "", g.world())
	suite.Write(t, filepath.Join(g.dir, "x.wasm"), string(suite.WasmModule()))
	for _, r := range resources() {
		if r.input != "" {
			g.write(t, "", r.input)
		}
	}
	g.mark(t)
	g.starts(t, row{})
	before := g.baseline(t)
	for _, r := range resources() {
		if r.input == "" {
			continue
		}
		g.client.hold(nil)
		must.Succeed(t, c.Delete(g.ctx, []byte(r.input)))
		g.eventually(t, "the proxy opens without "+r.name(), func() bool { return len(g.posture(t, g.envoy).moreOpen(before)) > 0 })
		g.write(t, "", r.input)
		g.closesAgain(t, before)
	}
	for _, a := range triedAnswers("404", "silence") {
		t.Run("while running/"+a.name, func(t *testing.T) { g.answeredWhileRunning(t, api, a, before) })
	}
	g.stop()
	// What is read before the others keeps the server from asking for them.
	batches := map[string][]resource{}
	for _, r := range resources() {
		batch := "others"
		if r.kind == nil || r.kind == kinds.ConfigMap {
			batch = r.name()
		}
		batches[batch] = append(batches[batch], r)
	}
	for _, batch := range slices.Sorted(maps.Keys(batches)) {
		for _, a := range triedAnswers("404", "403") {
			t.Run("at a start/"+batch+"/"+a.name, func(t *testing.T) { g.answeredAtStart(t, api, batches[batch], a, before) })
		}
	}
	g.runAll(t, clusterRows(g.remove))
}

// shared is the API server of all tests that need one. They use it one after the other.
var shared struct {
	sync.Mutex
	cluster *cluster.Cluster // nil: no test has needed it
}

// stopAPIServer stops the shared API server, if it runs.
func stopAPIServer() {
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
}

// useAPIServer has the servers of the group read the shared API server, which is empty, until the test ends. The proxy
// in front of it can be made to fail.
func useAPIServer(t *testing.T, g *group) (*cluster.Cluster, *faults.Proxy) {
	t.Helper()
	shared.Lock()
	t.Cleanup(shared.Unlock)
	if shared.cluster == nil {
		c, err := cluster.Start(g.ctx, cluster.Options{ServiceCIDR: "10.96.0.0/12"})
		must.Succeed(t, err)
		shared.cluster = c
		must.Succeed(t, c.InstallCRDs(g.ctx, os.Getenv(crdsVar)))
	}
	c := shared.cluster
	api, err := faults.Start(g.ctx, c, "")
	must.Succeed(t, err)
	t.Cleanup(func() {
		g.stop()
		api.Close()
		must.Succeed(t, c.Delete(context.WithoutCancel(g.ctx), []byte(suite.NamespacesYAML("a", "b", "istio-system"))))
	})
	g.heal = func() { api.Set(); api.Heal() }
	g.options.ConfigDir, g.options.Kubeconfig = "", filepath.Join(g.dir, "kubeconfig")
	must.Succeed(t, api.Access(c.Admin()).WriteFile(g.options.Kubeconfig))
	g.write = func(t *testing.T, _, yaml string) {
		t.Helper()
		must.Succeed(t, c.Apply(g.ctx, []byte(g.placed(yaml))))
	}
	g.put = func(t *testing.T, _ row, text string) { t.Helper(); g.write(t, "", text) }
	g.remove = func(t *testing.T, r row) { t.Helper(); must.Succeed(t, c.Delete(g.ctx, []byte(r.good))) }
	return c, api
}

// of returns the rule of an answer for a resource.
func (a answer) of(r resource) faults.Rule {
	rule := a.Rule
	rule.Match = r.match()
	return rule
}

// answeredWhileRunning has the API server answer wrongly to a server that has read everything.
func (g *group) answeredWhileRunning(t *testing.T, api *faults.Proxy, a answer, before posture) {
	var rules []faults.Rule
	for _, r := range resources() {
		rules = append(rules, a.of(r))
	}
	g.client.hold(before)
	api.Set(rules...)
	defer api.Set()
	api.Forget()
	for _, r := range rules {
		api.CutWatches(r.Match)
	}
	for _, r := range rules {
		g.eventually(t, "the server asks again for "+r.Resource, func() bool { return api.Count(r.Match) > 0 })
	}
	g.recover(t, api)
	for _, w := range g.witnesses() {
		g.check(t, "while running", kept, w, before)
	}
}

// recover ends the faults, with the requests that are held back, and waits until the witnesses have the newest state.
func (g *group) recover(t *testing.T, api *faults.Proxy) {
	t.Helper()
	api.Refuse()
	g.heal()
	g.mark(t)
	g.synced(t, g.envoy, g.client)
}

// answeredAtStart has the API server answer wrongly to a server that starts, which must not become ready before it has
// read the resources.
func (g *group) answeredAtStart(t *testing.T, api *faults.Proxy, list []resource, a answer, before posture) {
	var rules []faults.Rule
	for _, r := range list {
		rules = append(rules, a.of(r))
	}
	g.client.hold(before)
	api.Set(rules...)
	defer api.Set()
	api.Forget()
	starting, end := g.launch(t, row{})
	defer func() {
		end()
		if s := <-starting; s.err == nil {
			s.p.Kill()
		}
	}()
	for _, r := range list {
		times := 2
		if a.Delay > 0 {
			times = 1
		}
		g.eventually(t, fmt.Sprintf("the server asks %d times for %s", times, r.name()), func() bool { return api.Count(r.match()) >= times })
	}
	for _, r := range list {
		switch kind := "CustomResourceDefinition"; {
		case r.start(a) == whole:
			g.eventually(t, "the server is ready", func() bool { code, _ := fetch(g.http, "/ready"); return code == http.StatusOK })
		case r.kind != nil:
			kind = r.kind.Name
			fallthrough
		default:
			g.eventually(t, "the server is not ready, and says that "+kind+" is not read", func() bool {
				code, body := fetch(g.http, "/ready")
				return code == http.StatusServiceUnavailable && regexp.MustCompile(`not read yet: [^:]*\b`+kind+`\b`).MatchString(body)
			})
		}
	}
	g.recover(t, api)
	for _, w := range g.witnesses() {
		g.check(t, "once it is ready", kept, w, before)
	}
}
