package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// controlPlanePort is the control plane's port, which the rules of a pod do not redirect for its agent.
const controlPlanePort = 15012

// refreshEvery is the time between two looks at the ConfigMaps and Secrets in a pod's volumes.
const refreshEvery = 10 * time.Second

// pod is a pod on this node.
type pod struct {
	node   *Node
	object *corev1.Pod // as it was created
	addr   netip.Addr
	dir    string

	ctx    context.Context // until the pod must end
	cancel context.CancelFunc

	mu         sync.Mutex
	netns      *pods.Pod
	containers []*container
	ready      bool
}

// syncPods starts new pods of this node, and ends deleted pods.
func (n *Node) syncPods() error {
	all, err := n.factory.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	there := map[types.UID]bool{}
	for _, o := range all {
		there[o.UID] = true
		p := n.running[o.UID]
		switch {
		case p == nil && o.DeletionTimestamp == nil && o.Spec.NodeName == name:
			n.nextPod = n.nextPod.Next()
			p = &pod{node: n, object: o, addr: n.nextPod}
			p.ctx, p.cancel = context.WithCancel(n.ctx)
			n.running[o.UID] = p
			n.goes("pod "+o.Namespace+"/"+o.Name, p.run)
		case p == nil && o.DeletionTimestamp != nil:
			n.goes("remove "+o.Name, func() { n.remove(o) }) // it never ran
		case p != nil && o.DeletionTimestamp != nil:
			p.cancel()
		}
	}
	for uid, p := range n.running {
		if !there[uid] {
			p.cancel()
		}
	}
	return nil
}

// remove reports that a pod has ended.
func (n *Node) remove(o *corev1.Pod) {
	now := int64(0)
	err := n.o.Cluster.Client().CoreV1().Pods(o.Namespace).
		Delete(n.ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(o.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && n.ctx.Err() == nil {
		n.o.Logger.Info("pod not removed", "pod", o.Name, "error", err.Error())
	}
}

// find returns a running pod by name.
func (n *Node) find(namespace, podName string) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.running {
		if p.object.Namespace == namespace && p.object.Name == podName && p.ctx.Err() == nil {
			return p
		}
	}
	return nil
}

// run runs a pod until it ends.
func (p *pod) run() {
	n := p.node
	log := n.o.Logger.With("pod", p.object.Namespace+"/"+p.object.Name)
	defer func() {
		p.mu.Lock()
		containers, netns := p.containers, p.netns
		p.mu.Unlock()
		p.end(containers)
		if netns != nil {
			_ = netns.Close()
		}
		_ = os.RemoveAll(p.dir)
		n.remove(p.object)
		n.mu.Lock()
		delete(n.running, p.object.UID)
		n.mu.Unlock()
		n.wake()
	}()
	for {
		err := p.start()
		if err == nil {
			break
		}
		log.Info("pod not started yet", "error", err.Error())
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	refreshed := time.Now()
	for done := false; ; {
		if !done {
			var err error
			if done, err = p.check(); err != nil && p.ctx.Err() == nil {
				log.Info("status not written", "error", err.Error())
			}
		}
		if time.Since(refreshed) > refreshEvery {
			if err := p.refresh(); err != nil && p.ctx.Err() == nil {
				log.Info("volumes not refreshed", "error", err.Error())
			}
			refreshed = time.Now()
		}
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// start creates the pod's network and volumes, runs init containers, and starts the others. After a failure it
// continues there.
func (p *pod) start() (err error) {
	n := p.node
	if p.dir, err = n.folder(string(p.object.UID)); err != nil {
		return err
	}
	if p.netns == nil {
		netns, err := n.o.Network.Add(pods.Spec{Name: p.object.Name, Addr: p.addr})
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.netns = netns
		p.mu.Unlock()
	}
	phase := corev1.PodPending
	if len(p.containers) > 0 {
		phase = corev1.PodRunning
	}
	if err := p.writeStatus(phase, false); err != nil { // agents need the address
		return err
	}
	volumes, err := p.volumes()
	if err != nil {
		return err
	}
	spec := p.object.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(p.containers, func(running *container) bool { return running.spec.Name == c.Name }) {
			continue
		}
		if len(c.Args) > 0 && c.Args[0] == "istio-iptables" {
			if err := p.netns.RedirectBut(controlPlanePort); err != nil {
				return err
			}
			continue
		}
		running, err := p.launch(c, volumes)
		if err != nil {
			return fmt.Errorf("container %s: %w", c.Name, err)
		}
		p.mu.Lock()
		p.containers = append(p.containers, running)
		p.mu.Unlock()
		isInit := slices.ContainsFunc(spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
		if isInit {
			if err := running.first(p.ctx); err != nil {
				return fmt.Errorf("container %s: %w", c.Name, err)
			}
		}
	}
	return nil
}

// check probes the pod, and writes its status if that has changed. It returns true once the pod has ended.
func (p *pod) check() (done bool, err error) {
	ready := true
	if phase := p.ended(); phase != "" {
		err := p.writeStatus(phase, false)
		return err == nil, err
	}
	for _, c := range p.containers {
		if c.isInit() {
			continue
		}
		ready = ready && c.ready(p.ctx)
	}
	p.mu.Lock()
	same := p.ready == ready
	p.mu.Unlock()
	if same {
		return false, nil
	}
	if err := p.writeStatus(corev1.PodRunning, ready); err != nil {
		return false, err
	}
	p.mu.Lock()
	p.ready = ready
	p.mu.Unlock()
	return false, nil
}

// ended returns the phase of a pod whose containers have ended and are not restarted, or an empty string.
func (p *pod) ended() corev1.PodPhase {
	if p.object.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return ""
	}
	phase := corev1.PodSucceeded
	for _, c := range p.containers {
		if c.isInit() {
			continue
		}
		select {
		case <-c.ended:
			if !c.cmd.ProcessState.Success() {
				phase = corev1.PodFailed
			}
		default:
			return ""
		}
	}
	return phase
}

func (p *pod) writeStatus(phase corev1.PodPhase, ready bool) error {
	now := metav1.Now()
	truth := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	status := corev1.PodStatus{
		Phase: phase, PodIP: p.addr.String(), PodIPs: []corev1.PodIP{{IP: p.addr.String()}},
		HostIP: p.node.host().String(), HostIPs: []corev1.HostIP{{IP: p.node.host().String()}}, StartTime: &now,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		set := ready || kind == corev1.PodScheduled || kind == corev1.PodInitialized
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: truth[set], LastTransitionTime: now})
	}
	for _, c := range p.object.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = p.node.o.Cluster.Client().CoreV1().Pods(p.object.Namespace).Patch(p.ctx, p.object.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// end terminates all containers, each after the sleep of its hook preStop. Containers that outlive the pod's grace
// period are killed.
func (p *pod) end(containers []*container) {
	grace := 30 * time.Second
	if s := p.object.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	for _, c := range containers {
		var sleep time.Duration
		if l := c.spec.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			sleep = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
		}
		time.AfterFunc(sleep, func() { _ = c.cmd.Process.Signal(syscall.SIGTERM) })
	}
	late := time.After(grace)
	for _, c := range containers {
		select {
		case <-c.ended:
			continue
		case <-late:
		case <-p.node.ctx.Done():
		}
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}
