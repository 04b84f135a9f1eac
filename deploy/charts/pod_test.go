package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A pod is given the time that its server takes to stop, whatever that is set to, and nothing that the server does not
// read.
func TestPod(t *testing.T) {
	for _, x := range []struct {
		set             string
		drain, shutdown int64
	}{
		{"resources.limits.memory=2Gi", 5, 10},
		{"resources.limits.memory=2147483648", 5, 10},
		{"drainSeconds=0,shutdownSeconds=0", 0, 0},
		{"pilot.drainSeconds=30,shutdownSeconds=600", 30, 600},
		{"global.pilotCertProvider=custom,global.istiod.enableAnalysis=true", 5, 10},
	} {
		for _, h := range helms(t) {
			out := template(t, h, "istiod", chart(t, "istiod"), "--set", x.set)
			deployments := objects[appsv1.Deployment](t, out, "Deployment")
			if len(deployments) != 1 {
				t.Fatalf("%d deployments", len(deployments))
			}
			pod := deployments[0].Spec.Template.Spec
			if g := pod.TerminationGracePeriodSeconds; g == nil || *g != x.drain+x.shutdown+15 {
				t.Errorf("%s: %d s to stop", x.set, g)
			}
			for _, arg := range []string{fmt.Sprintf("--drainDuration=%ds", x.drain), fmt.Sprintf("--shutdownDuration=%ds", x.shutdown)} {
				if !slices.Contains(pod.Containers[0].Args, arg) {
					t.Errorf("%s: no %s in %q", x.set, arg, pod.Containers[0].Args)
				}
			}
			for _, e := range pod.Containers[0].Env {
				if slices.Contains([]string{"GOMEMLIMIT", "PILOT_ENABLE_ANALYSIS"}, e.Name) {
					t.Errorf("%s: %s is set", x.set, e.Name)
				}
				if custom := strings.Contains(x.set, "pilotCertProvider=custom"); e.Name == "PILOT_CERT_PROVIDER" && (e.Value == "custom") != custom {
					t.Errorf("%s: %s is %s", x.set, e.Name, e.Value)
				}
			}
			pods := []corev1.PodSpec{pod}
			for _, p := range objects[corev1.Pod](t, out, "Pod") {
				pods = append(pods, p.Spec)
			}
			if len(pods) != 2 {
				t.Fatalf("%d pods", len(pods))
			}
			for _, p := range pods {
				if p.EnableServiceLinks == nil || *p.EnableServiceLinks {
					t.Error("a pod gets every Service of its namespace as environment")
				}
			}
		}
	}
	for _, h := range helms(t) {
		roots := template(t, h, "istiod", chart(t, "istiod"), "--set", "revision=canary,jwksResolverExtraRootCA=a root")
		pod := objects[appsv1.Deployment](t, roots, "Deployment")[0].Spec.Template.Spec
		at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.ConfigMap != nil && v.ConfigMap.Name == "pilot-jwks-extra-cacerts-canary"
		})
		mounted := at >= 0 && slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == pod.Volumes[at].Name && m.MountPath == "/cacerts"
		})
		if !mounted || !strings.Contains(roots, "extra.pem: |-\n    a root") {
			t.Error("the roots for servers of keys are not mounted")
		}
	}
	for _, h := range helms(t) {
		accounts := objects[corev1.ServiceAccount](t, template(t, h, "base", chart(t, "base")), "ServiceAccount")
		if len(accounts) != 1 || accounts[0].AutomountServiceAccountToken == nil || *accounts[0].AutomountServiceAccountToken {
			t.Errorf("a pod that runs as the reader gets its token: %+v", accounts)
		}
	}
}
