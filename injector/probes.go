package injector

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// prober is a probe of the application that the agent makes instead of the kubelet, whose requests have no mTLS.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// hook is a place in a container that makes a kubelet send a request.
type hook struct {
	path    string
	http    **corev1.HTTPGetAction
	tcp     **corev1.TCPSocketAction
	grpc    **corev1.GRPCAction // nil if such a hook has no gRPC action
	seconds int32
}

// hooks returns the probes and lifecycle hooks of a container.
func hooks(c *corev1.Container) (list []hook) {
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livez", c.LivenessProbe}, {"readyz", c.ReadinessProbe}, {"startupz", c.StartupProbe}} {
		if p.probe != nil {
			list = append(list,
				hook{"/app-health/" + c.Name + "/" + p.name, &p.probe.HTTPGet, &p.probe.TCPSocket, &p.probe.GRPC, p.probe.TimeoutSeconds})
		}
	}
	if c.Lifecycle != nil {
		for _, p := range []struct {
			name    string
			handler *corev1.LifecycleHandler
		}{{"prestopz", c.Lifecycle.PreStop}, {"poststartz", c.Lifecycle.PostStart}} {
			if p.handler != nil {
				list = append(list, hook{"/app-lifecycle/" + c.Name + "/" + p.name, &p.handler.HTTPGet, &p.handler.TCPSocket, nil, 0})
			}
		}
	}
	return list
}

// others returns the containers other than the proxy.
func others(pod *corev1.Pod) (list []*corev1.Container) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name != proxyContainer {
				list = append(list, &containers[i])
			}
		}
	}
	return list
}

// host returns the host that a request names, and the effect of the rewrite on it. Both are empty if the request names
// no host. The kubelet keeps asking that host for HTTP, and the agent asks only its own host.
func (h hook) host(port int32) (host, effect string) {
	switch {
	case *h.http != nil && (*h.http).Host != "":
		return (*h.http).Host, fmt.Sprintf("it goes to port %d of that host, where no agent answers for this pod, and will fail", port)
	case *h.tcp != nil && (*h.tcp).Host != "":
		return (*h.tcp).Host, "the agent connects to the pod instead"
	}
	return "", ""
}

// rewriteProbes makes the kubelet probe the agent's port, and tells the agent how to probe the application. The
// warnings name ports that a container does not have, whose probes fail because the agent has nothing to ask, and
// requests to other hosts, which istiod rewrites too.
func rewriteProbes(pod *corev1.Pod, port int32) (warnings []string, err error) {
	proxy := proxyOf(pod)
	if proxy == nil || port == 0 {
		return nil, nil
	}
	probers := map[string]prober{}
	if text := variable(proxy, probersVariable); text != "" { // set by an earlier injection
		if err := json.Unmarshal([]byte(text), &probers); err != nil {
			return nil, fmt.Errorf("container %s: variable %s: %w", proxyContainer, probersVariable, err)
		}
	}
	for _, c := range others(pod) {
		for _, h := range hooks(c) {
			host, effect := h.host(port)
			p := prober{TimeoutSeconds: h.seconds}
			known, named := true, intstr.IntOrString{}
			to := &corev1.HTTPGetAction{}
			switch {
			case *h.http != nil && (*h.http).Port == intstr.FromInt32(port): // the agent's own, or rewritten before
				continue
			case *h.http != nil:
				p.HTTPGet = (*h.http).DeepCopy()
				named = p.HTTPGet.Port
				p.HTTPGet.Port, known = number(named, c)
				to = *h.http
				if to.Scheme == corev1.URISchemeHTTPS {
					to.Scheme = corev1.URISchemeHTTP
				}
			case *h.tcp != nil:
				p.TCPSocket = (*h.tcp).DeepCopy()
				named = p.TCPSocket.Port
				p.TCPSocket.Port, known = number(named, c)
			case h.grpc != nil && *h.grpc != nil:
				p.GRPC = *h.grpc
			default:
				continue
			}
			if host != "" {
				warnings = append(warnings, fmt.Sprintf(`container %s: %s names the host %s: %s; remove the host, or set the annotation %s to "false"`,
					c.Name, h.path, quoted(host), effect, rewriteAnnotation))
			}
			*h.http, *h.tcp = to, nil
			if h.grpc != nil {
				*h.grpc = nil
			}
			to.Path, to.Port = h.path, intstr.FromInt32(port)
			if known {
				probers[h.path] = p
			} else {
				warnings = append(warnings,
					fmt.Sprintf("container %s has no port %s, which %s names: it will fail", c.Name, quoted(named.String()), h.path))
			}
		}
	}
	if len(probers) == 0 {
		return warnings, nil
	}
	text, err := toJSON(probers)
	setVariable(proxy, probersVariable, text)
	return warnings, err
}

// number returns a port with a name replaced by the number of the container's port.
func number(port intstr.IntOrString, c *corev1.Container) (intstr.IntOrString, bool) {
	if port.Type == intstr.Int {
		return port, true
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return intstr.FromInt32(p.ContainerPort), true
		}
	}
	if n, err := strconv.ParseUint(port.StrVal, 10, 16); err == nil {
		return intstr.FromInt32(int32(n)), true
	}
	return port, false
}
