package failclosed

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
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

// resource is a resource of an API server that closes something.
type resource struct {
	name  string
	input string // an object that closes something; without it, the proxy is open. Empty: an outage is all there is.
	spare string // the answer with which a server can do without: it asks the API server in another way
}

// start is what becomes of a server that starts with an answer.
func (r resource) start(a answer) outcome {
	if r.spare == a.name {
		return whole
	}
	return refused
}

// resources have one object each that closes something. All of them are there together: a kind that authenticates, one
// that encrypts, the mesh configuration, and what a server cannot work without.
func resources() []resource {
	return []resource{
		{name: "authorizationpolicies", input: policy},
		{name: "destinationrules", input: object(networking, "DestinationRule", "{host: pay, trafficPolicy: {tls: {mode: SIMPLE, sni: pay.example}}}")},
		{name: "configmaps", input: meshConfigMap("outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n")},
		{name: "pods"},
		{name: "customresourcedefinitions", spare: "403"},
	}
}

// apiRows are the lines of the document.
func apiRows() (rows []row) {
	for _, res := range resources() {
		r := row{input: "an API server, asked for " + res.name}
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
	g := newGroup(t, 3, false)
	c, err := cluster.Start(g.ctx, cluster.Options{ServiceCIDR: "10.96.0.0/12"})
	must(t, err)
	t.Cleanup(c.Stop)
	must(t, c.InstallCRDs(g.ctx, os.Getenv(crdsVar)))
	api, err := faults.Start(g.ctx, c, "")
	must(t, err)
	t.Cleanup(api.Close)
	g.options.ConfigDir, g.options.Kubeconfig = "", filepath.Join(g.dir, "kubeconfig")
	must(t, api.Access(c.Admin()).WriteFile(g.options.Kubeconfig))
	g.write = func(t *testing.T, _, yaml string) { t.Helper(); must(t, c.Apply(g.ctx, []byte(yaml))) }
	g.write(t, "", g.world())
	for _, r := range resources() {
		if r.input != "" {
			g.write(t, "", r.input)
		}
	}
	before := g.serve(t, row{})
	for _, r := range resources() {
		if r.input == "" {
			continue
		}
		g.client.hold(nil)
		must(t, c.Delete(g.ctx, []byte(r.input)))
		g.eventually(t, "the proxy opens without "+r.name, func() bool { return len(g.posture(t, g.envoy).moreOpen(before)) > 0 })
		g.write(t, "", r.input)
		g.closesAgain(t, before)
	}
	for _, a := range answers() {
		t.Run("while running/"+a.name, func(t *testing.T) { g.answeredWhileRunning(t, api, a, before) })
	}
	g.stop()
	for _, r := range resources() {
		for _, a := range answers() {
			t.Run("at a start/"+r.name+"/"+a.name, func(t *testing.T) { g.answeredAtStart(t, api, r, a, before) })
		}
	}
}

// of returns the rule of an answer for a resource.
func (a answer) of(r resource) faults.Rule {
	rule := a.Rule
	rule.Match = faults.Match{Verbs: []string{"list", "watch"}, Resource: r.name}
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
		g.eventually(t, "the server asks again for "+r.Resource, func() bool { return api.Count(r.Match) > 0 })
	}
	g.mark(t)
	g.synced(t, g.envoy, g.client)
	for _, w := range []witness{g.envoy, g.client} {
		g.check(t, "while running", kept, w, before)
	}
}

// answeredAtStart has the API server answer wrongly to a server that starts, which must not become ready before it has
// read the resource.
func (g *group) answeredAtStart(t *testing.T, api *faults.Proxy, r resource, a answer, before posture) {
	rule, times := a.of(r), 4
	if a.Delay > 0 {
		times = 1
	}
	g.client.hold(before)
	api.Set(rule)
	defer api.Set()
	api.Forget()
	starting, end := g.launch(t, row{})
	defer func() {
		end()
		if s := <-starting; s.err == nil {
			s.p.Kill()
		}
	}()
	for api.Count(rule.Match) < times || r.start(a) == whole && len(starting) == 0 {
		if len(starting) > 0 && r.start(a) == refused {
			t.Fatalf("the server is ready, and has not read %s", r.name)
		}
		time.Sleep(10 * time.Millisecond)
	}
	code, body := fetch(g.http, "/ready")
	if (code == http.StatusOK) != (r.start(a) == whole) {
		t.Errorf("the readiness probe says %d %s, and the server has not read %s", code, body, r.name)
	}
	api.Set()
	if a.Delay == 0 { // what is delayed stays delayed
		g.mark(t)
		g.synced(t, g.envoy, g.client)
	}
	for _, w := range []witness{g.envoy, g.client} {
		g.check(t, "once it is ready", kept, w, before)
	}
}
