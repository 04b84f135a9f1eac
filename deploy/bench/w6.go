package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// scoped is W6.
type scoped struct{}

func (scoped) name() string { return "W6" }
func (scoped) needs() needs {
	return needs{fleet: true, delta: true, scene: sidecars, length: usualLength}
}

func (scoped) about(options) string {
	return "A Sidecar restricts each namespace to itself. In one namespace a VirtualService, endpoints, and a Service that comes and " +
		"goes change in turn: the bytes that reach proxies of other namespaces. Then come writes that no proxy depends on, in turn: " +
		"an annotation of a Service and of a Pod, a status, a Secret, a ConfigMap, an Event, a slice with its endpoints in another " +
		"order, and a Service applied without a change: the bytes that reach any proxy. Bytes are exact sums over these proxies."
}

func (scoped) rows() []row {
	none := 0.0
	return []row{
		{name: "changes: received by the others", unit: "bytes", atMost: &none, informative: true},
		{name: "changes: received by a proxy of the namespace, a change", unit: "kB"},
		{name: "changes: CPU a write", unit: "ms"},
		{name: "writes that no proxy depends on: received by all", unit: "bytes", atMost: &none, informative: true},
		{name: "writes that no proxy depends on: CPU a write", unit: "ms"},
		{name: "streams that ended", informative: true},
	}
}

// changingNamespace is the namespace that changes, and the number of a service in it. passingService is a Service there
// that comes and goes.
const (
	changingNamespace = 0
	passingService    = "bench-passing"
)

func (scoped) run(ctx context.Context, s *session) (figures, error) {
	within := func(proxy int) bool { return proxy%s.world.Services%s.world.Namespaces == changingNamespace }
	ended := s.fleet.Counters().Refused
	if err := s.clients.Core.CoreV1().Services(s.world.Namespace(changingNamespace)).
		Delete(ctx, passingService, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("delete what a run that failed has left: %w", err)
	}
	f := figures{}
	for _, part := range []struct {
		name  string
		turn  int // this many writes, each kind twice, restore the world
		write func(n int) error
	}{
		{"changes", 8, func(n int) error { return s.changeScoped(ctx, n) }},
		{"writes that no proxy depends on", 16, func(n int) error { return s.writeWithoutEffect(ctx, n) }},
	} {
		before, err := s.settle(ctx)
		if err != nil {
			return nil, err
		}
		own, others := s.received(within)
		writes := 0
		for begin := time.Now(); time.Since(begin) < s.length/2 || writes == 0 || writes%part.turn != 0; writes++ {
			if err := part.write(writes); err != nil {
				return nil, fmt.Errorf("%s: %w", part.name, err)
			}
			if err := sleepUntil(ctx, begin.Add(time.Duration(writes+1)*min(200*time.Millisecond, s.length/20))); err != nil {
				return nil, err
			}
		}
		after, err := s.settle(ctx)
		if err != nil {
			return nil, err
		}
		ownNow, othersNow := s.received(within)
		own, others = ownNow-own, othersNow-others
		f[part.name+": CPU a write"] = ms(after.cpu-before.cpu) / float64(writes)
		f[part.name+": received by the others"], f[part.name+": received by all"] = float64(others), float64(own+others)
		f[part.name+": received by a proxy of the namespace, a change"] = kB(own) / float64(writes) / float64(s.count(within))
	}
	f["streams that ended"] = float64(s.fleet.Counters().Refused - ended)
	return f, nil
}

// received returns how many bytes the meant proxies, and the other proxies, have received so far.
func (s *session) received(inScope func(proxy int) bool) (own, others int64) {
	for i := range s.fleet.Size() {
		if n := s.fleet.BytesOf(i); inScope(i) {
			own += n
		} else {
			others += n
		}
	}
	return own, others
}

func (s *session) count(inScope func(proxy int) bool) (n int) {
	for i := range s.fleet.Size() {
		if inScope(i) {
			n++
		}
	}
	return n
}

// changeScoped makes change n that concerns one namespace.
func (s *session) changeScoped(ctx context.Context, n int) error {
	namespace := s.world.Namespace(changingNamespace)
	switch n % 4 {
	case 0:
		return s.mark(ctx, changingNamespace, fmt.Sprint("scoped-", n))
	case 1:
		endpoints := s.clients.Core.DiscoveryV1().EndpointSlices(namespace)
		slice, err := endpoints.Get(ctx, s.world.EndpointSlice(changingNamespace).Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slice.Endpoints[0].Conditions.Ready
		*ready = !*ready
		_, err = endpoints.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	}
	service := s.world.Service(s.world.Services + 1) // no other workload uses its address
	service.Name, service.Namespace = passingService, namespace
	services := s.clients.Core.CoreV1().Services(namespace)
	if n%4 == 3 {
		return services.Delete(ctx, service.Name, metav1.DeleteOptions{})
	}
	_, err := services.Create(ctx, service, metav1.CreateOptions{})
	return err
}

// writeWithoutEffect makes write n that no proxy's configuration depends on.
func (s *session) writeWithoutEffect(ctx context.Context, n int) error {
	core, namespace := s.clients.Core, s.world.Namespace(changingNamespace)
	note := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.example.com/note":"%d"}}}`, time.Now().UnixNano())
	switch n % 8 {
	case 0:
		_, err := core.CoreV1().Services(namespace).Patch(ctx, world.Name(changingNamespace), types.MergePatchType, note, metav1.PatchOptions{})
		return err
	case 1:
		_, err := core.CoreV1().Pods(namespace).Patch(ctx, world.PodName(changingNamespace, 0), types.MergePatchType, note, metav1.PatchOptions{})
		return err
	case 2:
		status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, time.Now().UnixNano())
		_, err := s.clients.Dynamic.Resource(world.VirtualServiceResource()).Namespace(namespace).Patch(ctx, world.Name(changingNamespace),
			types.MergePatchType, status, metav1.PatchOptions{}, "status")
		return err
	case 3:
		secrets := core.CoreV1().Secrets(namespace)
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bench"},
			Data: map[string][]byte{"n": []byte(fmt.Sprint(n))}}, metav1.CreateOptions{})
		return errors.Join(err, secrets.Delete(ctx, "bench", metav1.DeleteOptions{}))
	case 4:
		maps := core.CoreV1().ConfigMaps(namespace)
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Data: map[string]string{"n": fmt.Sprint(n)}},
			metav1.CreateOptions{})
		return errors.Join(err, maps.Delete(ctx, "bench", metav1.DeleteOptions{}))
	case 5:
		endpoints := core.DiscoveryV1().EndpointSlices(namespace)
		slice, err := endpoints.Get(ctx, s.world.EndpointSlice(changingNamespace).Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		slices.Reverse(slice.Endpoints)
		_, err = endpoints.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	case 6:
		service, force := s.world.Service(changingNamespace), true
		service.APIVersion, service.Kind = "v1", "Service"
		text, err := json.Marshal(service)
		if err != nil {
			return err
		}
		_, err = core.CoreV1().Services(namespace).Patch(ctx, service.Name, types.ApplyPatchType, text,
			metav1.PatchOptions{FieldManager: "bench", Force: &force})
		return err
	default:
		other := s.world.Namespace(changingNamespace + 1)
		_, err := core.CoreV1().Events(other).Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Namespace: other}, Reason: "Bench", Message: "nothing happened",
			Type:           corev1.EventTypeNormal,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: other, Name: world.PodName(changingNamespace+1, 0)},
		}, metav1.CreateOptions{})
		return err
	}
}
