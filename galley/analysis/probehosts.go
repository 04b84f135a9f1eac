package analysis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// ProbeHost is a host that a probe or hook names.
type ProbeHost struct {
	Field, Host string
	TCP         bool // TCP connection instead of an HTTP or gRPC request
}

// probeHosts returns the hosts in the probes and hooks of a container, which is at field at.
func probeHostsOf(at string, c *corev1.Container) (list []ProbeHost) {
	add := func(field string, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		field = at + "." + field
		switch {
		case http != nil && http.Host != "":
			list = append(list, ProbeHost{field + ".httpGet.host", http.Host, false})
		case tcp != nil && tcp.Host != "":
			list = append(list, ProbeHost{field + ".tcpSocket.host", tcp.Host, true})
		}
	}
	for _, p := range []struct {
		field string
		probe *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe != nil {
			add(p.field, p.probe.HTTPGet, p.probe.TCPSocket)
		}
	}
	if l := c.Lifecycle; l != nil && l.PreStop != nil {
		add("lifecycle.preStop", l.PreStop.HTTPGet, l.PreStop.TCPSocket)
	}
	if l := c.Lifecycle; l != nil && l.PostStart != nil {
		add("lifecycle.postStart", l.PostStart.HTTPGet, l.PostStart.TCPSocket)
	}
	return list
}

// rewriteAnnotation decides whether injection redirects the probes of a Pod to its agent.
const rewriteAnnotation = names.AnnotationRewriteAppHTTPProbers

// probeHosts reports probes and hooks with a host in Pods with a proxy, because injection redirects them to the agent.
func (a *analysis) probeHosts() {
	for _, w := range a.pods {
		if w.pod.HostNetwork || !w.pod.Proxy && !a.injects(w.object) || w.object.Annotations[rewriteAnnotation] == "false" {
			continue
		}
		for _, p := range w.pod.ProbeHosts {
			effect := "it asks the port of the agent at that host, where no agent answers for this Pod"
			if p.TCP {
				effect = "the agent connects to the Pod instead"
			}
			a.report(w.object, diag.Warning, codeProbeHost, p.Field, "remove the host, or set the annotation "+rewriteAnnotation+` to "false"`,
				"the probe or hook names the host %s: with a proxy %s", p.Host, effect)
		}
	}
}
