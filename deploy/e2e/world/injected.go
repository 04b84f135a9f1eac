package world

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/node"
)

const proxyContainer = "istio-proxy"

// proxyOf returns the container that injection has added to a pod, or nil.
func proxyOf(p *corev1.Pod) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == proxyContainer }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// injected reads the identity of the proxy from its container, as its agent does: from its command and environment.
func (p *Pod) injected(pod *corev1.Pod, c *corev1.Container) error {
	if len(c.Args) < 2 || c.Args[0] != "proxy" {
		return fmt.Errorf("the command is not a proxy's: %v", c.Args)
	}
	fields := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"spec.nodeName": pod.Spec.NodeName, "status.podIP": pod.Status.PodIP, "status.hostIP": pod.Status.HostIP,
	}
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
		if v.ValueFrom == nil || v.ValueFrom.FieldRef == nil {
			continue
		}
		value, ok := fields[v.ValueFrom.FieldRef.FieldPath]
		if !ok {
			return fmt.Errorf("%s: a kubelet knows no field %s", v.Name, v.ValueFrom.FieldRef.FieldPath)
		}
		env[v.Name] = value
	}
	p.Proxied = true
	n := &p.Node
	n.Type, n.Interception = node.Type(c.Args[1]), node.Interception(env["ISTIO_META_INTERCEPTION_MODE"])
	n.Name, n.Namespace, n.ServiceAccount, n.NodeName = env["POD_NAME"], env["POD_NAMESPACE"], env["SERVICE_ACCOUNT"],
		env["ISTIO_META_NODE_NAME"]
	n.Workload, n.Cluster, n.Network = env["ISTIO_META_WORKLOAD_NAME"], env["ISTIO_META_CLUSTER_ID"], env["ISTIO_META_NETWORK"]
	if env["INSTANCE_IP"] != n.Addr.String() {
		return fmt.Errorf("INSTANCE_IP is %q", env["INSTANCE_IP"])
	}
	return nil
}
