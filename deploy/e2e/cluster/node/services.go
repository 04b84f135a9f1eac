package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// manager is the value of the label that says who manages a slice.
const manager = "endpointslice-controller.k8s.io"

func (n *Node) services() ([]*corev1.Service, error) {
	return n.factory.Core().V1().Services().Lister().List(labels.Everything())
}

// selected returns the pods of a Service, by name.
func (n *Node) selected(s *corev1.Service) ([]*corev1.Pod, error) {
	if len(s.Spec.Selector) == 0 {
		return nil, nil
	}
	list, err := n.factory.Core().V1().Pods().Lister().Pods(s.Namespace).List(labels.SelectorFromSet(s.Spec.Selector))
	list = slices.DeleteFunc(list, func(p *corev1.Pod) bool { return p.Status.PodIP == "" })
	slices.SortFunc(list, func(a, b *corev1.Pod) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
	return list, err
}

// syncEndpoints creates an EndpointSlice for each Service with a selector.
func (n *Node) syncEndpoints() error {
	all, err := n.services()
	if err != nil {
		return err
	}
	lister := n.factory.Discovery().V1().EndpointSlices().Lister()
	var errs []error
	for _, s := range all {
		if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		want, err := n.slice(s)
		if err != nil {
			return err
		}
		client := n.o.Cluster.Client().DiscoveryV1().EndpointSlices(s.Namespace)
		now, err := lister.EndpointSlices(s.Namespace).Get(want.Name)
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(n.ctx, want, metav1.CreateOptions{})
		case err == nil && (!apiequality.Semantic.DeepEqual(now.Endpoints, want.Endpoints) ||
			!apiequality.Semantic.DeepEqual(now.Ports, want.Ports) || !maps.Equal(now.Labels, want.Labels)):
			want.ResourceVersion = now.ResourceVersion
			_, err = client.Update(n.ctx, want, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// slice returns the EndpointSlice of a Service. It uses the named ports of the first pod for all pods.
func (n *Node) slice(s *corev1.Service) (*discoveryv1.EndpointSlice, error) {
	pods, err := n.selected(s)
	if err != nil {
		return nil, err
	}
	out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name + "-pods", Namespace: s.Namespace,
		Labels:          map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: manager},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))},
	}, AddressType: discoveryv1.AddressTypeIPv4}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range pods {
		ready, ending := isReady(p), p.DeletionTimestamp != nil
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIP}, NodeName: ptr.To(name),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready && !ending), Serving: ptr.To(ready), Terminating: ptr.To(ending)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	for _, port := range s.Spec.Ports {
		number := targetPort(port, pods)
		if number == 0 {
			continue
		}
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(port.Protocol),
			AppProtocol: port.AppProtocol})
	}
	return out, nil
}

func targetPort(port corev1.ServicePort, pods []*corev1.Pod) int32 {
	if port.TargetPort.Type == intstr.Int {
		if port.TargetPort.IntVal != 0 {
			return port.TargetPort.IntVal
		}
		return port.Port
	}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, named := range c.Ports {
				if named.Name == port.TargetPort.StrVal {
					return named.ContainerPort
				}
			}
		}
	}
	return 0
}

// syncLoadBalancers gives Services of type LoadBalancer an address, which leads to the first ready pod.
func (n *Node) syncLoadBalancers() error {
	all, err := n.services()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.DeletionTimestamp != nil {
			continue
		}
		addr, ok := n.loadBalancer(s)
		var want []corev1.LoadBalancerIngress
		if ok {
			want = []corev1.LoadBalancerIngress{{IP: addr.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
		}
		if !apiequality.Semantic.DeepEqual(s.Status.LoadBalancer.Ingress, want) {
			s = s.DeepCopy()
			s.Status.LoadBalancer.Ingress = want
			_, err := n.o.Cluster.Client().CoreV1().Services(s.Namespace).UpdateStatus(n.ctx, s, metav1.UpdateOptions{})
			errs = append(errs, err)
		}
		if ok {
			errs = append(errs, n.lead(s, addr))
		}
	}
	return errors.Join(errs...)
}

// loadBalancer returns the address of a Service: the one that it asks for, if that is usable, or a new one.
func (n *Node) loadBalancer(s *corev1.Service) (netip.Addr, bool) {
	if s.Spec.LoadBalancerIP != "" {
		addr, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
		return addr, err == nil && slices.Contains(n.o.Usable, addr)
	}
	if _, ok := n.assigned[s.UID]; !ok {
		n.assigned[s.UID] = n.nextLoadBalancer
		n.nextLoadBalancer = n.nextLoadBalancer.Next()
	}
	return n.assigned[s.UID], true
}

// lead routes an address to the first ready pod of a Service.
func (n *Node) lead(s *corev1.Service, addr netip.Addr) error {
	pods, err := n.selected(s)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if !isReady(p) || p.DeletionTimestamp != nil {
			continue
		}
		n.mu.Lock()
		to := n.running[p.UID]
		n.mu.Unlock()
		if to == nil || to.netns == nil || n.routes[addr] == to.addr {
			return nil
		}
		if err := to.netns.AddAddress(addr); err != nil {
			return fmt.Errorf("address of Service %s/%s: %w", s.Namespace, s.Name, err)
		}
		n.routes[addr] = to.addr
		return n.o.Network.Route(addr, to.addr)
	}
	return nil
}
