package flagger

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestCanary deploys a version that answers, and then one that fails.
func TestCanary(t *testing.T) {
	w := start(t)
	w.Write(shop + strings.NewReplacer("VERSION", "1", "STATUS", "200").Replace(web))
	w.Ready("shop", "client")
	reaches := func(what, phase string, weights ...int64) {
		t.Helper()
		suite.Eventually(t, what, func() bool {
			nowPhase, now := w.canary(t)
			if nowPhase == "Failed" && phase != "Failed" {
				t.Fatalf("the canary has failed: %s", w.Log("default", "flagger"))
			}
			return nowPhase == phase && slices.Equal(now, weights)
		})
	}
	reaches("Flagger has made the objects", "Initialized", 100, 0)
	r := w.Load("shop", "client", "http://web/", kind)
	defer r.Stop()
	suite.Eventually(t, "requests reach the primary version", func() bool {
		answers, _ := r.Reset()
		return len(answers) == 1 && answers["primary 200"] > 0
	})

	w.deploy(t, "2", "200")
	reaches("the first weight", "Progressing", 70, 30)
	reaches("the last weight", "Progressing", 40, 60)
	reaches("the promotion", "Succeeded", 100, 0)
	answers, errs := r.Reset()
	t.Logf("answers during the promotion: %v", answers)
	if len(errs) > 0 || len(answers) != 2 || answers["primary 200"] == 0 || answers["canary 200"] == 0 {
		t.Errorf("answers during the promotion: %v, errors: %v", answers, errs)
	}
	for _, p := range w.Pods("shop", "app=web-primary") {
		if !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return strings.HasSuffix(c.Image, ":2") }) {
			t.Errorf("pod %s does not have the promoted version", p.Name)
		}
	}

	w.deploy(t, "3", "500")
	reaches("the first weight of a version that fails", "Progressing", 70, 30)
	reaches("the rollback", "Failed", 100, 0)
	if log := w.Log("default", "flagger"); !strings.Contains(log, "advancement success-rate 0.00 < 99") {
		t.Errorf("the rollback has another reason: %s", log)
	}
	answers, errs = r.Reset()
	t.Logf("answers until the rollback: %v", answers)
	if len(errs) > 0 || len(answers) != 2 || answers["primary 200"] == 0 || answers["canary 500"] == 0 {
		t.Errorf("answers until the rollback: %v, errors: %v", answers, errs)
	}
	suite.Eventually(t, "requests reach the primary version alone", func() bool {
		answers, _ := r.Reset()
		return len(answers) == 1 && answers["primary 200"] > 20
	})
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("Flagger", binaries.Version("flagger"), "canaries by VirtualServices, analysed by the requests and "+
			"durations that Prometheus "+binaries.Version("prometheus")+" scraped from sidecars", "works"))
	}
}
