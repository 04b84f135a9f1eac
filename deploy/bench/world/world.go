package world

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RootNamespace is the namespace of the control plane.
const RootNamespace = "istio-system"

// AppPort is the port that the pods listen on, and ServicePort the port of the Services.
const (
	AppPort     = 8080
	ServicePort = 80
)

// Nodes is the number of nodes. Half of them are in each of two zones.
const Nodes = 4

// maxPods is the number of addresses that are reserved for the pods of a service.
const maxPods = 64

// World holds the numbers of all objects.
type World struct {
	Services   int
	Pods       int // of each service, at most 64
	Namespaces int
	// VirtualServices and DestinationRules belong to the services with the lowest numbers, one each. There are at most as
	// many as services.
	VirtualServices  int
	DestinationRules int
}

// Sized returns the world of the workloads with the given number of services.
func Sized(services int) World {
	return World{Services: services, Pods: 5, Namespaces: 20, VirtualServices: min(200, services), DestinationRules: min(200, services)}
}

// Namespace returns the namespace of service s.
func (w World) Namespace(s int) string { return "ns-" + strconv.Itoa(s%w.Namespaces) }

// Name returns the name of service s. Its ServiceAccount has the same name, and its EndpointSlice that name with the
// suffix "-a".
func Name(s int) string { return "svc-" + strconv.Itoa(s) }

// Host returns the host name of service s.
func (w World) Host(s int) string { return Name(s) + "." + w.Namespace(s) + ".svc.cluster.local" }

// PodName returns the name of pod p of service s.
func PodName(s, p int) string { return Name(s) + "-6c9f7b8d5-" + strconv.Itoa(p) }

// PodIP returns the address of pod p of service s.
func PodIP(s, p int) string {
	n := s*maxPods + p
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&0xff, n&0xff)
}

// ClusterIP returns the address of service s.
func ClusterIP(s int) string {
	n := s + 256
	return fmt.Sprintf("10.%d.%d.%d", 100+n>>16, n>>8&0xff, n&0xff)
}

// NodeName returns the name of the node of pod p of service s.
func NodeName(s, p int) string { return "node-" + strconv.Itoa((s+p)%Nodes) }

// Node returns the node with a number.
func Node(n int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + strconv.Itoa(n), Labels: map[string]string{
		corev1.LabelTopologyRegion: "r1", corev1.LabelTopologyZone: Zone(n),
	}}}
}

// Zone returns the zone of a node.
func Zone(n int) string { return "z" + strconv.Itoa(n%2+1) }

// Service returns service s.
func (w World) Service(s int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: Name(s), Namespace: w.Namespace(s), Labels: map[string]string{"app": Name(s)}},
		Spec: corev1.ServiceSpec{
			ClusterIP: ClusterIP(s), Selector: map[string]string{"app": Name(s)},
			Ports: []corev1.ServicePort{{Name: "http", Port: ServicePort, TargetPort: intstr.FromInt32(AppPort), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// EndpointSlice returns the EndpointSlice with all pods of service s.
func (w World) EndpointSlice(s int) *discoveryv1.EndpointSlice {
	name, port, protocol, ready := "http", int32(AppPort), corev1.ProtocolTCP, true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: Name(s) + "-a", Namespace: w.Namespace(s),
			Labels: map[string]string{discoveryv1.LabelServiceName: Name(s)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for p := range w.Pods {
		node := NodeName(s, p)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{PodIP(s, p)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: PodName(s, p), Namespace: w.Namespace(s)},
		})
	}
	return slice
}

// PodLabels returns the labels of the pods of service s.
func PodLabels(s int) map[string]string {
	return map[string]string{
		"app": Name(s), "version": "v1", "pod-template-hash": "6c9f7b8d5", "security.istio.io/tlsMode": "istio",
		"service.istio.io/canonical-name": Name(s), "service.istio.io/canonical-revision": "v1",
	}
}

// Pod returns pod p of service s. It is as large as a pod with a sidecar.
func (w World) Pod(s, p int) *corev1.Pod {
	controller := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(s, p), Namespace: w.Namespace(s), GenerateName: Name(s) + "-6c9f7b8d5-", Labels: PodLabels(s),
			Annotations: map[string]string{
				"sidecar.istio.io/status": `{"initContainers":["istio-init"],"containers":["istio-proxy"],` +
					`"volumes":["workload-socket","istio-token"],"revision":"default"}`,
				"kubectl.kubernetes.io/default-container": "app", "prometheus.io/path": "/stats/prometheus", "prometheus.io/port": "15020",
				"prometheus.io/scrape": "true",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: Name(s) + "-6c9f7b8d5",
				UID: "00000000-0000-0000-0000-000000000000", Controller: &controller}},
		},
		Spec: corev1.PodSpec{
			NodeName: NodeName(s, p), ServiceAccountName: Name(s),
			Containers: []corev1.Container{
				{Name: "app", Image: "registry.example/app:1", Ports: []corev1.ContainerPort{{ContainerPort: AppPort}}, Env: variables(8),
					Resources: requests()},
				{
					Name: "istio-proxy", Image: "registry.example/proxyv2:1", Args: []string{"proxy", "sidecar"}, Env: variables(24),
					Resources: requests(),
					Ports:     []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090}},
				},
			},
			Volumes: []corev1.Volume{{Name: "workload-socket", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: PodIP(s, p), PodIPs: []corev1.PodIP{{IP: PodIP(s, p)}},
			HostIP: "192.0.2." + strconv.Itoa(1+(s+p)%Nodes)},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true})
	}
	return pod
}

func variables(n int) []corev1.EnvVar {
	out := make([]corev1.EnvVar, n)
	for i := range out {
		out[i] = corev1.EnvVar{Name: "VARIABLE_" + strconv.Itoa(i), Value: "some-value-of-a-usual-length"}
	}
	return out
}

func requests() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// VirtualServices and DestinationRules as resources of an API server.
var (
	virtualServices  = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	destinationRules = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}
)

// VirtualServiceResource returns the resource of VirtualServices.
func VirtualServiceResource() schema.GroupVersionResource { return virtualServices }

// VirtualService returns the VirtualService of service s. The mark is the value of a header that it sets, so that a
// route shows its version.
func (w World) VirtualService(s int, mark string) *unstructured.Unstructured {
	to := []any{map[string]any{"destination": map[string]any{"host": w.Host(s), "subset": "v1"}}}
	return istio("VirtualService", Name(s), w.Namespace(s), map[string]any{
		"hosts": []any{w.Host(s)},
		"http": []any{
			map[string]any{
				"name": "api", "match": []any{map[string]any{"uri": map[string]any{"prefix": "/api"}}}, "timeout": "5s", "route": to,
				"retries": map[string]any{"attempts": int64(3), "retryOn": "5xx"},
				"headers": map[string]any{"response": map[string]any{"set": map[string]any{"x-bench": mark}}},
			},
			map[string]any{"name": "rest", "route": to},
		},
	})
}

// DestinationRule returns the DestinationRule of service s.
func (w World) DestinationRule(s int) *unstructured.Unstructured {
	return istio("DestinationRule", Name(s), w.Namespace(s), map[string]any{
		"host":          w.Host(s),
		"trafficPolicy": map[string]any{"connectionPool": map[string]any{"http": map[string]any{"http2MaxRequests": int64(1000)}}},
		"subsets":       []any{map[string]any{"name": "v1", "labels": map[string]any{"version": "v1"}}},
	})
}

func istio(kind, name, namespace string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}
