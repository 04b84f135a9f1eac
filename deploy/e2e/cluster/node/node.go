package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// name is the name of the only node.
const name = "node"

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// Image describes the image of a container.
type Image struct {
	Entrypoint []string
	Files      map[string]string // path in the container to path outside
}

// Options configure a node.
type Options struct {
	Cluster *cluster.Cluster
	Network *pods.Network
	Dir     string // for volumes
	Contain string // the program of the folder contain
	// Image returns the image with a name. A pod with an unknown image never starts.
	Image func(name string) (Image, bool)
	// Pods are the addresses of pods, and LoadBalancers those of Services of that type. Usable are more addresses for
	// Services that ask for them.
	Pods, LoadBalancers netip.Prefix
	Usable              []netip.Addr
	// Owners are the resources, by kind, that may own others in addition to Deployments and Services. Objects that they
	// owned are deleted with them.
	Owners map[string]schema.GroupVersionResource
	Logger *slog.Logger
}

// Node is a running node.
type Node struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	kick   chan struct{}
	all    sync.WaitGroup

	factory informers.SharedInformerFactory
	owners  dynamicinformer.DynamicSharedInformerFactory
	kubelet kubelet

	nextPod, nextLoadBalancer netip.Addr
	equipped                  map[types.UID]bool       // namespaces with their required objects
	assigned                  map[types.UID]netip.Addr // of Services of type LoadBalancer
	routes                    map[netip.Addr]netip.Addr
	listening                 map[string]*serviceProxy

	mu      sync.Mutex
	running map[types.UID]*pod
}

// Start starts the node, and returns once it watches the cluster. The cluster must have the resources of the owners.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{
		o: o, kick: make(chan struct{}, 1), nextPod: o.Pods.Masked().Addr().Next(), nextLoadBalancer: o.LoadBalancers.Masked().Addr().Next(),
		equipped: map[types.UID]bool{}, assigned: map[types.UID]netip.Addr{}, routes: map[netip.Addr]netip.Addr{},
		listening: map[string]*serviceProxy{}, running: map[types.UID]*pod{},
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.factory = informers.NewSharedInformerFactory(o.Cluster.Client(), 0)
	n.owners = dynamicinformer.NewDynamicSharedInformerFactory(o.Cluster.Dynamic(), 0)
	if err := n.start(ctx); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if err := n.serveKubelet(); err != nil {
		return err
	}
	if err := n.serveDNS(); err != nil {
		return err
	}
	if err := n.register(ctx); err != nil {
		return err
	}
	follow := []cache.SharedIndexInformer{
		n.factory.Core().V1().Pods().Informer(), n.factory.Core().V1().Services().Informer(), n.factory.Core().V1().Namespaces().Informer(),
		n.factory.Core().V1().ServiceAccounts().Informer(), n.factory.Apps().V1().Deployments().Informer(),
		n.factory.Apps().V1().ReplicaSets().Informer(), n.factory.Batch().V1().Jobs().Informer(),
		n.factory.Discovery().V1().EndpointSlices().Informer(),
	}
	for _, r := range n.o.Owners {
		follow = append(follow, n.owners.ForResource(r).Informer())
	}
	for _, i := range follow {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { n.wake() }, UpdateFunc: func(any, any) { n.wake() }, DeleteFunc: func(any) { n.wake() },
		}); err != nil {
			return fmt.Errorf("follow the cluster: %w", err)
		}
	}
	n.factory.Start(n.ctx.Done())
	n.owners.Start(n.ctx.Done())
	for _, i := range follow {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return fmt.Errorf("follow the cluster: %w", ctx.Err())
		}
	}
	n.goes("loop", n.loop)
	n.wake()
	return nil
}

// register creates the Node object, with which the API server finds the kubelet.
func (n *Node) register(ctx context.Context) error {
	nodes := n.o.Cluster.Client().CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the node: %w", err)
	}
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.host().String()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.kubelet.port}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("make the node: %w", err)
	}
	return nil
}

// host returns the address of this program, which is the node's address.
func (n *Node) host() netip.Addr { return n.o.Network.Gateway() }

// Stop ends everything that runs.
func (n *Node) Stop() {
	n.cancel()
	n.kubelet.stop()
	n.factory.Shutdown()
	n.owners.Shutdown()
	n.all.Wait()
}

// goes runs a goroutine that Stop waits for.
func (n *Node) goes(name string, fn func()) {
	n.all.Add(1)
	safe.Go(n.o.Logger, "node: "+name, func() {
		defer n.all.Done()
		fn()
	})
}

// wake makes the loop reconcile everything again.
func (n *Node) wake() {
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// loop reconciles everything after each change. Failures are retried.
func (n *Node) loop() {
	steps := []struct {
		name string
		do   func() error
	}{
		{"namespaces", n.syncNamespaces}, {"garbage", n.collect}, {"deployments", n.syncDeployments},
		{"replica sets", n.syncReplicaSets}, {"jobs", n.syncJobs}, {"pods", n.syncPods},
		{"endpoints", n.syncEndpoints}, {"load balancers", n.syncLoadBalancers}, {"proxies", n.syncProxies},
	}
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	again := false
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.kick:
		case <-retry.C:
			if !again {
				continue
			}
		}
		again = false
		for _, s := range steps {
			if err := s.do(); err != nil && n.ctx.Err() == nil {
				again = true
				if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
					n.o.Logger.Info("tried again", "step", s.name, "error", err.Error())
				}
			}
		}
		// Changes that come together are reconciled together.
		select {
		case <-n.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// folder creates a folder of a pod.
func (n *Node) folder(parts ...string) (string, error) {
	dir := filepath.Join(append([]string{n.o.Dir}, parts...)...)
	return dir, os.MkdirAll(dir, 0o755)
}
