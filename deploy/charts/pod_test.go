package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A pod gets the time that its server takes to stop, for any setting, the variables of values, and no other.
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
			analysis := slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: "PILOT_ENABLE_ANALYSIS", Value: "true"})
			if analysis != strings.Contains(x.set, "enableAnalysis=true") {
				t.Errorf("%s: analysis %v", x.set, analysis)
			}
			for _, e := range pod.Containers[0].Env {
				if e.Name == "GOMEMLIMIT" || e.Name == "PILOT_ENABLE_ANALYSIS" && !analysis {
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

// Certificates of other authorities are mounted where the server reads them, whether or not they exist: below its
// working directory, which is the root of the image. The ConfigMap of the roots is mounted unless the server writes it
// itself.
func TestCertificatesOfOthers(t *testing.T) {
	const custom = "env.ISTIOD_CUSTOM_HOST=istiod.example.com"
	source := func(v corev1.Volume) (name string, optional *bool) {
		switch {
		case v.Secret != nil:
			return "Secret " + v.Secret.SecretName, v.Secret.Optional
		case v.ConfigMap != nil:
			return "ConfigMap " + v.ConfigMap.Name, v.ConfigMap.Optional
		}
		return "", nil
	}
	for _, x := range []struct {
		set  string
		want map[string]string // by path; empty means that nothing is mounted there
		env  map[string]string
	}{
		{custom, map[string]string{"/etc/cacerts": "Secret cacerts", "/var/run/secrets/istiod/tls": "Secret istiod-tls",
			"/var/run/secrets/istiod/ca": ""}, map[string]string{"ISTIOD_CUSTOM_HOST": "istiod.example.com"}},
		{"pilot.env.ENABLE_CA_SERVER=false,global.caAddress=issuer.example:443",
			map[string]string{"/var/run/secrets/istiod/tls": "Secret istiod-tls", "/var/run/secrets/istiod/ca": "ConfigMap istio-ca-root-cert"},
			nil},
		{"env.ENABLE_CA_SERVER=false,env.PILOT_CA_CERT_CONFIGMAP=roots", map[string]string{"/var/run/secrets/istiod/ca": "ConfigMap roots"}, nil},
		{"global.pilotCertProvider=k8s.io/a.example/b,env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API,env.K8S_SIGNER=a.example/b", nil,
			map[string]string{"PILOT_CERT_PROVIDER": "k8s.io/a.example/b", "EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER": "a.example/b"}},
	} {
		for _, h := range helms(t) {
			pod := objects[appsv1.Deployment](t, template(t, h, "istiod", chart(t, "istiod"), "--set", x.set), "Deployment")[0].Spec.Template.Spec
			server := pod.Containers[0]
			mounted := map[string]string{}
			for _, m := range server.VolumeMounts {
				at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
				if at < 0 {
					t.Fatalf("%s: there is no volume %s", x.set, m.Name)
				}
				name, optional := source(pod.Volumes[at])
				if name == "" {
					continue
				}
				mounted[m.MountPath] = name
				if optional == nil || !*optional || !m.ReadOnly || m.SubPath != "" { // a mounted part would not follow changes of the object
					t.Errorf("%s: %s has to be there, or may be written, or is a part", x.set, name)
				}
			}
			for path, want := range x.want {
				if mounted[path] != want {
					t.Errorf("%s: %s has %q, want %q", x.set, path, mounted[path], want)
				}
			}
			for name, want := range x.env {
				if !slices.ContainsFunc(server.Env, func(e corev1.EnvVar) bool { return e.Name == name && e.Value == want }) {
					t.Errorf("%s: no %s=%s in %v", x.set, name, want, server.Env)
				}
			}
			if server.WorkingDir != "" && server.WorkingDir != "/" {
				t.Errorf("it works in %s", server.WorkingDir)
			}
		}
	}
}
