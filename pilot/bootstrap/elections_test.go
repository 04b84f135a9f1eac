package bootstrap

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestForbiddenLeases: each Lease that the API server refuses is a finding of the server.
func TestForbiddenLeases(t *testing.T) {
	for pod, want := range map[string][]string{
		"istiod-0": {
			"istio-analyze-leader", "istio-gateway-deployment-default", "istio-namespace-controller-election",
			"istio-status-leader", "istio-webhook-controller-election", "istio-workloadentry-cleanup",
		},
		"": {"istio-analyze-leader", "istio-instance", "istio-status-leader"},
	} {
		t.Run(pod, func(t *testing.T) {
			api := &apiserver.Server{Intercept: func(r *http.Request) error {
				if strings.Contains(r.URL.Path, "/leases") {
					return apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "x", errors.New("no role"))
				}
				return nil
			}}
			at := httptest.NewServer(api)
			t.Cleanup(at.Close)
			o := certificateOptions(t)
			o.Client, o.PodName, o.Advice, o.Conditions = &rest.Config{Host: at.URL}, pod, true, true
			s, err := New(o)
			must.Succeed(t, err)
			run(t, s)
			eventually(t, strings.Join(want, ", "), func() bool {
				var got []string
				for _, d := range s.components.Findings() {
					if name, is := strings.CutPrefix(d.Object, "Lease istio-system/"); is && d.Code == "LeaseForbidden" {
						got = append(got, name)
					}
				}
				slices.Sort(got)
				return slices.EqualFunc(got, want, strings.HasPrefix)
			})
		})
	}
}
