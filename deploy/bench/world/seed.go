package world

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Clients writes a world to an API server and changes it there.
type Clients struct {
	Core    kubernetes.Interface
	Dynamic dynamic.Interface
}

// NewClients returns clients of an API server without a rate limit.
func NewClients(config *rest.Config) (*Clients, error) {
	custom := rest.CopyConfig(config)
	custom.QPS = -1
	core := rest.CopyConfig(custom)
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(core)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(custom)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Clients{Core: typed, Dynamic: dyn}, nil
}

// Seed creates the missing objects of a world. It writes as many objects in parallel as there are workers. The
// CustomResourceDefinitions must exist. It calls progress now and then, from any goroutine, with the number of services
// that are done.
func (c *Clients) Seed(ctx context.Context, w World, workers int, progress func(done int)) error {
	if w.Pods > maxPods {
		return fmt.Errorf("a service has at most %d pods", maxPods)
	}
	if err := c.seedGround(ctx, w); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	var done atomic.Int64
	for s := range w.Services {
		g.Go(func() error {
			if err := c.seedService(ctx, w, s); err != nil {
				return fmt.Errorf("seed service %d: %w", s, err)
			}
			if n := done.Add(1); n%250 == 0 || int(n) == w.Services {
				progress(int(n))
			}
			return nil
		})
	}
	return g.Wait()
}

func (c *Clients) seedGround(ctx context.Context, w World) error {
	names := []string{RootNamespace}
	for n := range w.Namespaces {
		names = append(names, w.Namespace(n))
	}
	for _, name := range names {
		_, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err := orExists(err); err != nil {
			return fmt.Errorf("seed namespace %s: %w", name, err)
		}
	}
	for n := range Nodes {
		_, err := c.Core.CoreV1().Nodes().Create(ctx, Node(n), metav1.CreateOptions{})
		if err := orExists(err); err != nil {
			return fmt.Errorf("seed node %d: %w", n, err)
		}
	}
	return nil
}

func (c *Clients) seedService(ctx context.Context, w World, s int) error {
	ns := w.Namespace(s)
	// Get, because a second Create would be refused for its address and not for its name.
	_, err := c.Core.CoreV1().Services(ns).Get(ctx, Name(s), metav1.GetOptions{})
	if err == nil {
		return nil // it is written first, so the other objects exist too, or the seeding failed
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := c.Core.CoreV1().Services(ns).Create(ctx, w.Service(s), metav1.CreateOptions{}); err != nil {
		return err
	}
	for p := range w.Pods {
		pod := w.Pod(s, p)
		status := pod.Status
		pod, err := c.Core.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		pod.Status = status
		if _, err := c.Core.CoreV1().Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	_, err = c.Core.DiscoveryV1().EndpointSlices(ns).Create(ctx, w.EndpointSlice(s), metav1.CreateOptions{})
	if s < w.VirtualServices {
		_, vs := c.Dynamic.Resource(virtualServices).Namespace(ns).Create(ctx, w.VirtualService(s, "seed"), metav1.CreateOptions{})
		err = errors.Join(err, vs)
	}
	if s < w.DestinationRules {
		_, dr := c.Dynamic.Resource(destinationRules).Namespace(ns).Create(ctx, w.DestinationRule(s), metav1.CreateOptions{})
		err = errors.Join(err, dr)
	}
	return err
}

func orExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
