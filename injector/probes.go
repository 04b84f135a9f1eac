package injector

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// prober is how the agent probes the application, in the place of the kubelet, whose requests have no mTLS.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// hook is one place of a container where a kubelet makes a request.
type hook struct {
	path    string
	http    **corev1.HTTPGetAction
	tcp     **corev1.TCPSocketAction
	grpc    **corev1.GRPCAction // nil: has none
	seconds int32
}

// hooks returns where a kubelet makes requests to a container.
func hooks(c *corev1.Container) (list []hook) {
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livez", c.LivenessProbe}, {"readyz", c.ReadinessProbe}, {"startupz", c.StartupProbe}} {
		if p.probe != nil {
			list = append(list, hook{"/app-health/" + c.Name + "/" + p.name, &p.probe.HTTPGet, &p.probe.TCPSocket, &p.probe.GRPC, max(p.probe.TimeoutSeconds, 1)})
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

// users returns the containers that are not the proxy's and have probes.
func users(pod *corev1.Pod) (list []*corev1.Container) {
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, c)
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Name == proxyContainer {
			list = append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// rewriteProbes has the kubelet ask the agent at its port, and tells the agent what to ask the application.
func rewriteProbes(pod *corev1.Pod, port int32) error {
	proxy := proxyOf(pod)
	if proxy == nil {
		return nil
	}
	probers := map[string]prober{}
	if text := variable(proxy, probersVariable); text != "" { // of an earlier injection
		if err := json.Unmarshal([]byte(text), &probers); err != nil {
			return fmt.Errorf("container %s: variable %s: %w", proxyContainer, probersVariable, err)
		}
	}
	for _, c := range users(pod) {
		for _, h := range hooks(c) {
			p := prober{TimeoutSeconds: h.seconds}
			var ok bool
			to := &corev1.HTTPGetAction{}
			switch {
			case *h.http != nil:
				p.HTTPGet = (*h.http).DeepCopy()
				if p.HTTPGet.Port, ok = number(p.HTTPGet.Port, c); !ok || p.HTTPGet.Port.IntVal == port {
					continue
				}
				to = *h.http
				if to.Scheme == corev1.URISchemeHTTPS {
					to.Scheme = corev1.URISchemeHTTP
				}
			case *h.tcp != nil:
				p.TCPSocket = (*h.tcp).DeepCopy()
				if p.TCPSocket.Port, ok = number(p.TCPSocket.Port, c); !ok {
					continue
				}
			case h.grpc != nil && *h.grpc != nil:
				p.GRPC = *h.grpc
			default:
				continue
			}
			*h.http, *h.tcp = to, nil
			if h.grpc != nil {
				*h.grpc = nil
			}
			to.Path, to.Port = h.path, intstr.FromInt32(port)
			probers[h.path] = p
		}
	}
	if len(probers) == 0 {
		return nil
	}
	text, err := toJSON(probers)
	if err == nil {
		setVariable(proxy, probersVariable, text)
	}
	return err
}

// number returns a port with the number that its name has in a container.
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
