package status

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// distributionRig is a Distribution with an API server of VirtualServices in namespace a, beside which an Analysis may
// write.
type distributionRig struct {
	runner
	*Distribution

	mu         sync.Mutex
	objects    map[kinds.Key]*kinds.Object
	answers    map[string]progress.Answer // by name of the object; its Generation is replaced
	others     progress.State             // of other replicas; empty if they have the same
	findings   []diag.Diagnostic
	selections uint64
	asked      int
	reads      int
}

func onDistributionRig(t *testing.T, test func(*distributionRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &distributionRig{objects: map[kinds.Key]*kinds.Object{}, answers: map[string]progress.Answer{}}
		r.Distribution = NewDistribution(DistributionOptions{World: r, Progress: r, Host: r, Limit: NewLimit(0)})
		r.start(t, r.Distribution)
		defer func() { r.stop() }()
		r.Set(func() {
			r.Intercept = func(request *http.Request) error {
				if path := request.URL.Path; !strings.Contains(path, "/v1/") || !strings.Contains(path, "virtualservices") {
					return apierrors.NewNotFound(schema.GroupResource{}, "")
				}
				if request.Method == http.MethodGet {
					r.reads++
				}
				return nil
			}
		})
		synctest.Wait() // the term has begun
		test(r)
	})
}

func (r *distributionRig) Object(k kinds.Key) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[k]
}

func (r *distributionRig) Accepts(_ string, labels map[string]string) bool {
	return labels["istio.io/rev"] == ""
}

func (r *distributionRig) Selections() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.selections
}

func (r *distributionRig) ObjectFindings() []diag.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findings
}

func (r *distributionRig) Notify(list ...reconcile.Request) { r.controller.Notify(list...) }

func (r *distributionRig) Own(q progress.Question) progress.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	a := r.answers[q.Key.Name]
	if o := r.objects[q.Key]; o != nil && a.Generation == 0 {
		a.Generation = o.Generation
	}
	return a
}

func (r *distributionRig) Ask(_ context.Context, q progress.Question) progress.Answer {
	a := r.Own(q)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.others != "" {
		a.State = r.others
	}
	return a
}

func (r *distributionRig) path(name string) string {
	return "/apis/networking.istio.io/v1/namespaces/a/virtualservices/" + name
}

func keyOfRoute(name string) kinds.Key {
	return kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
}

// change gives an object a generation, as the World and the API server have it. It notifies the reconciler, as a commit
// does.
func (r *distributionRig) change(name string, generation int64, a progress.Answer) {
	r.put(name, generation)
	r.answer(name, a)
	r.controller.Notify(Request(keyOfRoute(name)))
}

// put writes an object without its status.
func (r *distributionRig) put(name string, generation int64) {
	u := route("v1", name, "", false)
	if old := r.Server.Object(r.path(name)); old != nil {
		u.Object["status"] = old.DeepCopy().Object["status"]
	}
	u.SetGeneration(generation)
	r.Put(r.path(name), u)
	k := keyOfRoute(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[k] = &kinds.Object{Key: k, UID: "uid-" + name, Generation: generation}
}

func (r *distributionRig) answer(name string, a progress.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[name] = a
}

// says fails unless the status of an object has these conditions, as TYPE=STATUS MESSAGE, and kstatus reads it like
// this.
func (r *distributionRig) says(name string, read kstatus.Status, want ...string) {
	r.Helper()
	u := r.Server.Object(r.path(name))
	var got []string
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		c := c.(map[string]any)
		got = append(got, fmt.Sprintf("%v=%v %v", c["type"], c["status"], c["message"]))
	}
	if !slices.Equal(got, want) {
		r.Errorf("conditions of %s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := kstatusOf(r.T, u); got != read {
		r.Errorf("kstatus reads %s as %s, want %s: %v", name, got, read, u.Object["status"])
	}
}

// kstatusOf returns how kstatus reads an object.
func kstatusOf(t *testing.T, u *unstructured.Unstructured) kstatus.Status {
	t.Helper()
	result, err := kstatus.Compute(u)
	must.Succeed(t, err)
	return result.Status
}

func behind(settled, concerned int, names ...string) progress.Answer {
	a := progress.Answer{State: progress.Behind, Counted: true, Proxies: progress.Proxies{
		Connected: 20, Concerned: concerned, InForce: settled, Behind: concerned - settled,
	}}
	for _, name := range names {
		a.Owing = append(a.Owing, progress.Owing{Proxy: name, State: "behind", Since: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	return a
}

func inForce(concerned int) progress.Answer {
	return progress.Answer{State: progress.InForce, Counted: true,
		Proxies: progress.Proxies{Connected: 20, Concerned: concerned, InForce: concerned}}
}

// TestConditions: the conditions say what the answers say, for each state, and kstatus reads an object as Current
// exactly when it is in force.
func TestConditions(t *testing.T) {
	rejected := behind(11, 12)
	rejected.State, rejected.Proxies.Rejected, rejected.Proxies.Behind = progress.Rejected, 1, 0
	rejected.Owing = []progress.Owing{{Proxy: "web-0.a", State: string(progress.Rejected), Type: "rds", Message: "no such cluster"}}
	unknown := behind(12, 12)
	unknown.State, unknown.Why = progress.Unknown, "these replicas cannot be asked: istiod-b"
	without := func(why string) progress.Answer {
		return progress.Answer{State: progress.WithoutEffect, Counted: true, Why: why}
	}
	later := progress.Answer{State: progress.InForce, Proxies: progress.Proxies{Connected: 20, Later: 3}}
	invalid := progress.Answer{State: progress.Invalid, Why: "the control plane does not use it as it is written", Findings: []diag.Diagnostic{
		{Severity: diag.Error, Code: "Unusable", Object: "VirtualService a/web", Field: "spec.http", Message: "is bad", Fix: "mend it"},
		{Severity: diag.Info, Code: "Other", Object: "VirtualService a/web", Message: "looks odd"},
	}}
	notSeen := progress.Answer{State: progress.NotSeen}
	for _, c := range []struct {
		name    string
		answer  progress.Answer
		kstatus kstatus.Status
		want    []string
	}{
		{"in force", inForce(12), kstatus.CurrentStatus, []string{"Reconciled=True 12 of 12 proxies"}},
		{"without effect", without(progress.NoChanges), kstatus.CurrentStatus, []string{
			"Reconciled=True it changed nothing that a connected proxy was sent; proxies that connect later get it before they are ready",
		}},
		{"without proxies", without(progress.NoProxy), kstatus.CurrentStatus, []string{
			"Reconciled=True no proxy was connected; proxies that connect later get it before they are ready",
		}},
		{"reaches no proxy", without(progress.Unreached), kstatus.CurrentStatus, []string{
			"Reconciled=True a finding said that it reached no proxy; proxies that connect later get it before they are ready",
		}},
		{"hidden", without("its namespace is not selected"), kstatus.CurrentStatus, []string{"Reconciled=True its namespace is not selected"}},
		{"proxies that connected later", later, kstatus.CurrentStatus, []string{
			"Reconciled=True all that it concerns of 20 connected proxies",
		}},
		{"behind", behind(8, 12, "web-0.a", "web-1.a", "web-2.a", "web-3.a"), kstatus.InProgressStatus, []string{
			"Reconciled=False 8 of 12 proxies",
			"Reconciling=True waiting for web-0.a since 2000-01-01T00:00:00Z, web-1.a since 2000-01-01T00:00:00Z, " +
				"web-2.a since 2000-01-01T00:00:00Z and 1 more",
		}},
		{"unknown", unknown, kstatus.InProgressStatus, []string{"Reconciled=Unknown 12 of 12 proxies",
			"Reconciling=True these replicas cannot be asked: istiod-b"}},
		{"rejected", rejected, kstatus.FailedStatus, []string{"Reconciled=False 11 of 12 proxies",
			"Stalled=True web-0.a rejects it (rds): no such cluster"}},
		{"invalid", invalid, kstatus.FailedStatus, []string{"Reconciled=False the control plane does not use it as it is written",
			"Stalled=True spec.http: is bad; mend it"}},
		{"not seen", notSeen, kstatus.CurrentStatus, nil}, // an object without a status is Current for kstatus
	} {
		t.Run(c.name, func(t *testing.T) {
			onDistributionRig(t, func(r *distributionRig) {
				r.change("web", 1, c.answer)
				r.pass(5 * time.Second)
				r.says("web", c.kstatus, c.want...)
			})
		})
	}
}

// TestDistribution: an object is followed from its change until it is in force. A quick change costs one write, and a
// change of messages is written at intervals. Nothing is written, read or asked when nothing changes.
func TestDistribution(t *testing.T) {
	onDistributionRig(t, func(r *distributionRig) {
		r.change("web", 1, behind(0, 12, "web-0.a"))
		if n := r.pass(100 * time.Millisecond); n != 0 {
			t.Errorf("%d writes at once", n)
		}
		r.answer("web", inForce(12))
		if n := r.pass(2 * time.Second); n != 1 {
			t.Errorf("%d writes of a quick change, want 1", n)
		}
		r.says("web", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")
		u := r.Server.Object(r.path("web"))
		if _, ok := u.Object["status"].(map[string]any)["observedGeneration"].(int64); !ok {
			t.Errorf("observedGeneration is no number: %v", u.Object["status"])
		}

		r.change("web", 2, behind(11, 12, "web-0.a"))
		if got := kstatusOf(t, r.Server.Object(r.path("web"))); got != kstatus.InProgressStatus {
			t.Errorf("kstatus before the first write of a generation: %s", got)
		}
		if n := r.pass(3 * time.Second); n != 1 {
			t.Errorf("%d writes of a change that takes longer, want 1", n)
		}
		for i := range 100 { // another proxy is named each time
			r.answer("web", behind(11, 12, fmt.Sprintf("web-%d.a", i)))
			time.Sleep(time.Second)
		}
		if n := len(r.Writes()); n < 5 || n > 12 {
			t.Errorf("%d writes of messages in 100 seconds, want about 10", n)
		}
		r.answer("web", inForce(12))
		if n := r.pass(10 * time.Second); n != 1 {
			t.Errorf("%d writes once it is in force, want 1", n)
		}
		r.says("web", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")

		asked, reads := r.asked, r.reads
		r.answer("web", behind(1, 2, "web-9.a")) // a proxy that connects again is no change
		if n := r.pass(time.Hour); n != 0 || r.reads > reads+1 || r.asked != asked {
			t.Errorf("%d writes, %d reads and %d questions without a change", n, r.reads-reads, r.asked-asked)
		}
	})
}

// TestOthers: what other replicas say decides, and a rejected object is followed until it is no longer rejected.
func TestOthers(t *testing.T) {
	onDistributionRig(t, func(r *distributionRig) {
		r.others = progress.Behind
		r.change("web", 1, inForce(12))
		r.pass(5 * time.Second)
		if got := kstatusOf(t, r.Server.Object(r.path("web"))); got != kstatus.InProgressStatus {
			t.Errorf("kstatus while another replica is behind: %s", got)
		}
		r.mu.Lock()
		r.others = progress.Rejected
		r.mu.Unlock()
		r.pass(20 * time.Second)
		if got := kstatusOf(t, r.Server.Object(r.path("web"))); got != kstatus.FailedStatus {
			t.Errorf("kstatus while another replica has a rejection: %s", got)
		}
		r.mu.Lock()
		r.others = ""
		r.mu.Unlock()
		r.pass(20 * time.Second)
		r.says("web", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")
	})
}

// TestStaleGeneration: an answer about one generation is never written to another one, nor to an object of another UID
// or revision.
func TestStaleGeneration(t *testing.T) {
	onDistributionRig(t, func(r *distributionRig) {
		r.put("web", 1)
		r.answer("web", inForce(12))
		u := route("v1", "web", "", false)
		u.SetGeneration(2)
		r.Put(r.path("web"), u) // the World does not have it yet
		r.put("other", 3)
		u = route("v1", "other", "canary", false)
		r.Put(r.path("other"), u)
		r.put("again", 3)
		r.answer("again", inForce(12))
		u = route("v1", "again", "", false)
		u.SetUID("new")
		r.Drop(r.path("again"))
		r.Put(r.path("again"), u)
		r.answer("other", inForce(1))
		for _, name := range []string{"web", "other", "again", "gone"} {
			r.controller.Notify(Request(keyOfRoute(name)))
		}
		if n := r.pass(10 * time.Second); n != 0 {
			t.Errorf("%d writes", n)
		}
		r.change("web", 2, inForce(12))
		if n := r.pass(10 * time.Second); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

// TestFirstObjects: objects that have not changed since the start are written once, at the rate, if their status does
// not say that they are in force, and not before proxies had time to connect. An object that changes meanwhile does not
// wait. Another leader writes nothing again.
func TestFirstObjects(t *testing.T) {
	const count = 400
	onDistributionRig(t, func(r *distributionRig) {
		all := inForce(0)
		all.Counted = false
		for i := range count {
			r.put(fmt.Sprint("old-", i), 3)
			r.answer(fmt.Sprint("old-", i), all)
		}
		known := r.Server.Object(r.path("old-0")).DeepCopy()
		known.Object["status"] = map[string]any{"observedGeneration": int64(3), "conditions": []any{
			map[string]any{"type": "Reconciled", "status": "True", "message": "12 of 12 proxies", "observedGeneration": int64(3)},
		}}
		r.Put(r.path("old-0"), known)
		r.answer("old-0", behind(0, 20, "web-0.a")) // the proxies connect again
		if n := r.pass(returnTime - time.Second); n != 0 {
			t.Errorf("%d writes before proxies had time to connect", n)
		}
		time.Sleep(11 * time.Second)
		began := time.Now()
		r.change("new", 1, inForce(12))
		for r.Server.Object(r.path("new")).Object["status"] == nil && time.Since(began) < 5*time.Second {
			time.Sleep(100 * time.Millisecond)
		}
		r.says("new", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")
		n := len(r.Writes())
		if n > 20*16 {
			t.Errorf("%d writes within 15 seconds", n)
		}
		if n += r.pass(time.Minute); n != count { // all but old-0, and new
			t.Errorf("%d writes, want %d", n, count)
		}
		r.says("old-1", kstatus.CurrentStatus, "Reconciled=True all that it concerns of 20 connected proxies")
		r.says("old-0", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")
		r.stop()
		r.begin()
		if n := r.pass(time.Minute); n != 0 {
			t.Errorf("another leader writes %d statuses", n)
		}
		r.put("selected", 3) // its namespace is selected: no change of the object
		r.answer("selected", all)
		r.mu.Lock()
		r.selections++
		r.mu.Unlock()
		if n := r.pass(time.Minute); n != 1 {
			t.Errorf("%d writes after a selection, want 1", n)
		}
	})
}

// TestUnusable: a version that is not used is Stalled, although no change follows it, and is followed until it is used.
func TestUnusable(t *testing.T) {
	onDistributionRig(t, func(r *distributionRig) {
		r.change("web", 1, inForce(12))
		r.pass(5 * time.Second)
		r.mu.Lock()
		r.findings = []diag.Diagnostic{{Severity: diag.Error, Code: "Unusable", Object: "VirtualService a/web", Message: "is bad"}}
		r.answers["web"] = progress.Answer{State: progress.Invalid, Why: "it is not used", Generation: 2, Findings: r.findings}
		r.mu.Unlock()
		u := r.Server.Object(r.path("web")).DeepCopy()
		u.SetGeneration(2)
		r.Put(r.path("web"), u)
		if n := r.pass(20 * time.Second); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		r.says("web", kstatus.FailedStatus, "Reconciled=False it is not used", "Stalled=True is bad")
		r.mu.Lock()
		r.findings = nil
		r.mu.Unlock()
		r.change("web", 3, inForce(12))
		r.pass(20 * time.Second)
		r.says("web", kstatus.CurrentStatus, "Reconciled=True 12 of 12 proxies")
	})
}

// TestBesideAnalysis: an Analysis and a Distribution keep what the other one writes, and only the Distribution writes
// observedGeneration.
func TestBesideAnalysis(t *testing.T) {
	bad := wanted{summary: "bad", messages: []any{map[string]any{"level": "ERROR"}}}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(3)}}}
	merge := func(parts map[string]any) {
		t.Helper()
		if parts == nil {
			t.Fatal("nothing is written")
		}
		status, _ := u.Object["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
			u.Object["status"] = status
		}
		for name, v := range parts {
			status[name] = v
		}
	}
	yes := outcome{reconciled: isTrue, reason: "InForce", message: "1 of 1 proxies"}
	merge(conditionsPatch(u, yes, time.Unix(1000, 0)))
	u.SetGeneration(4)
	merge(patch(u, bad, time.Unix(2000, 0), true))
	if got := kstatusOf(t, u); got != kstatus.InProgressStatus {
		t.Errorf("kstatus after an analysis of a generation that is not in force: %s", got)
	}
	merge(conditionsPatch(u, yes, time.Unix(3000, 0)))
	if c := conditionOf(u.Object["status"].(map[string]any), reconciled); c[transitionTime] != "1970-01-01T00:16:40Z" {
		t.Errorf("the time of a condition whose status has not changed: %v", c)
	}
	if got := kstatusOf(t, u); got != kstatus.CurrentStatus || conditionsPatch(u, yes, time.Unix(4000, 0)) != nil ||
		patch(u, bad, time.Unix(4000, 0), true) != nil {
		t.Errorf("kstatus %s, or one of both writes again: %v", got, u.Object["status"])
	}
}
