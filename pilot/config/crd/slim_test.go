package crd

import (
	"fmt"
	"go/token"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// filler fills whole objects of the API with values that mean something here and there.
type filler struct{ *rand.Rand }

func (f filler) word() string {
	words := []string{
		"a", "b", "c", "http", "tcp", "grpc", "Ready", "True", "False", "Pod", "ReplicaSet", "Job", "Node", "istio", "10.0.0.1", "10.0.0.2",
		"2001:db8::1", "None", "UDP", "TCP", "SCTP",
		"Running", "Failed", "Succeeded", "Local", "Always", "PreferClose", "IPv4", "IPv6", "r/z/s", "8080", "x-28391040", "svc.example.com",
		"true", "ClusterIP", "LoadBalancer",
	}
	return words[f.IntN(len(words))]
}

func (f filler) key() string {
	keys := []string{
		"app", "version", "networking.istio.io/exportTo", "networking.istio.io/traffic-distribution", "networking.istio.io/tunnel",
		"topology.istio.io/network", "topology.istio.io/subzone",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "istio-locality", "security.istio.io/tlsMode",
		"service.istio.io/canonical-name", "service.istio.io/canonical-revision",
		"service.istio.io/workload-name", "istio.io/draining", "istio.io/persistent-session", "alpha.istio.io/kubernetes-serviceaccounts",
		"alpha.istio.io/canonical-serviceaccounts",
		"pod-template-hash", discoveryv1.LabelServiceName, corev1.LastAppliedConfigAnnotation, "sidecar.istio.io/status", "prometheus.io/scrape",
		kinds.AnnotationSuppress,
	}
	return keys[f.IntN(len(keys))]
}

func (f filler) fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.NewTime(time.Unix(int64(1_700_000_000+f.IntN(1000)), 0))
		return
	case *resource.Quantity:
		*x = resource.MustParse("1")
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(int32(f.IntN(3) * 4040))
		if f.IntN(2) == 0 {
			*x = intstr.FromString(f.word())
		}
		return
	case *metav1.FieldsV1:
		x.SetRawBytes([]byte("{}"))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 && f.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth-1)
			}
		}
	case reflect.Slice:
		if depth <= 0 {
			return
		}
		n := f.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		if depth <= 0 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(5) {
			value := reflect.New(v.Type().Elem()).Elem()
			f.fill(value, depth-1)
			v.SetMapIndex(reflect.ValueOf(f.key()).Convert(v.Type().Key()), value)
		}
	case reflect.String:
		v.SetString(f.word())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.IntN(3) * 4040))
	case reflect.Uint8:
		v.SetUint(uint64(f.IntN(256)))
	case reflect.Float64:
		v.SetFloat(1)
	}
}

// wholeObject is one filled at random, as a source that keeps everything would hand it on.
func (f filler) wholeObject(k *kinds.Kind, n name) *kinds.Object {
	spec := k.New()
	f.fill(reflect.ValueOf(spec).Elem(), 8)
	reflect.ValueOf(spec).Elem().FieldByName("TypeMeta").SetZero()
	m := spec.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	m.Name, m.Namespace = n.name, n.namespace
	if len(m.OwnerReferences) == 2 { // no object has two controllers
		no := false
		m.OwnerReferences[1].Controller = &no
	}
	switch o := spec.(type) {
	case *corev1.Service:
		o.Spec.Type = corev1.ServiceType([]string{"ClusterIP", "ClusterIP", "ExternalName"}[f.IntN(3)])
		o.Spec.ClusterIP = "10.96.0.1"
		o.Spec.Ports = append(
			o.Spec.Ports, corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)},
		)
	case *discoveryv1.EndpointSlice:
		o.AddressType = discoveryv1.AddressTypeIPv4
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[discoveryv1.LabelServiceName] = f.service()
		for i := range o.Endpoints {
			o.Endpoints[i].Addresses = []string{fmt.Sprint("10.0.0.", i)}
			if f.IntN(3) > 0 {
				o.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: n.namespace, Name: string(rune('a' + i))}
			}
		}
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)})
	}
	return &kinds.Object{
		Key: kinds.Key{Kind: k, Namespace: n.namespace, Name: n.name}, UID: string(m.UID), Labels: m.Labels, Annotations: m.Annotations,
		Created: m.CreationTimestamp.Time, Spec: spec,
	}
}

func (f filler) service() string { return []string{"a", "b"}[f.IntN(2)] }

// cutDown takes an object the way that a feed takes it.
func cutDown(t *testing.T, f *feed, o *kinds.Object) *kinds.Object {
	t.Helper()
	text, err := o.Spec.(interface{ Marshal() ([]byte, error) }).Marshal()
	must.Succeed(t, err)
	it, err := f.item(text, true)
	must.Succeed(t, err)
	out, err := f.object(it)
	must.Succeed(t, err)
	return out
}

func coreKinds() []*kinds.Kind {
	return slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool { return coreOf(k) == nil })
}

// Whatever the registry makes of whole objects it makes of those that are cut down. A field that it begins to read and
// that is cut off shows here.
func TestRegistryReadsNothingThatIsCutOff(t *testing.T) {
	endpoints, workloads := 0, 0
	for seed := range uint64(400) {
		f := filler{rand.New(rand.NewPCG(seed, 1))}
		s := &Source{seed: maphash.MakeSeed()}
		feeds := map[*kinds.Kind]*feed{}
		for _, k := range coreKinds() {
			feeds[k] = newFeed(s, k, Restriction{})
			feeds[k].loaded.Store(seed%2 == 1) // in the first load objects are decoded at once, later if they differ
		}
		var fat, slim []kinds.Change
		add := func(k *kinds.Kind, n name) {
			o := f.wholeObject(k, n)
			fat = append(fat, kinds.Change{Key: o.Key, Object: o})
			slim = append(slim, kinds.Change{Key: o.Key, Object: cutDown(t, feeds[k], o)})
		}
		for _, ns := range []string{"a", "istio-system"} {
			add(kinds.Namespace, name{"", ns})
			for _, n := range []string{"a", "b"} {
				add(kinds.Service, name{ns, n})
			}
			for i := range 4 {
				add(kinds.Pod, name{ns, string(rune('a' + i))})
			}
			for i := range f.IntN(3) {
				add(kinds.EndpointSlice, name{ns, fmt.Sprint("s", i)})
			}
		}
		add(kinds.Node, name{"", "a"})
		add(kinds.Node, name{"", "b"})
		want, got := kube.New(kube.Options{}).Apply(fat), kube.New(kube.Options{}).Apply(slim)
		for _, l := range want.Endpoints {
			endpoints += len(l)
		}
		workloads += len(want.Workloads)
		for _, c := range []struct {
			what      string
			want, got any
		}{{"services", want.Services, got.Services}, {"endpoints", want.Endpoints, got.Endpoints}, {"workloads", want.Workloads, got.Workloads}} {
			if d := difference(c.want, c.got); d != "" {
				t.Fatalf("seed %d: %s (-of whole objects +of these): %s", seed, c.what, d)
			}
		}
	}
	if endpoints < 300 || workloads < 1000 {
		t.Errorf("the objects say too little to show anything: %d endpoints, %d workloads", endpoints, workloads)
	}
}

// TestProxyImage: of the images of a Pod that of its proxy is read, wherever that container stands, with ports or
// without.
func TestProxyImage(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	app := corev1.Container{Name: "app", Image: "app:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}
	proxy := corev1.Container{Name: "istio-proxy", Image: "proxyv2:1"}
	sidecar := corev1.Container{Name: "istio-proxy", Image: "proxyv2:2", RestartPolicy: &always}
	for want, spec := range map[string]corev1.PodSpec{
		"":          {Containers: []corev1.Container{app}},
		"proxyv2:1": {Containers: []corev1.Container{app, proxy}},
		"proxyv2:2": {Containers: []corev1.Container{app}, InitContainers: []corev1.Container{{Name: "istio-init", Image: "proxyv2:3"}, sidecar}},
	} {
		o := &kinds.Object{
			Key:  kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: "a"},
			Spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "a"}, Spec: spec},
		}
		whole := kube.PodFactsOf(o.Spec.(*corev1.Pod), nil)
		cut := cutDown(t, newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{}), o).Spec.(*kube.PodFacts)
		if whole.ProxyImage != want || cut.ProxyImage != want || len(cut.Ports) != 1 {
			t.Errorf("%q of the whole Pod, %q of what is read: want %q", whole.ProxyImage, cut.ProxyImage, want)
		}
	}
}

// TestRevisionOfProxies: a Pod's annotations name the revision of its proxy. The injector's status is not kept.
func TestRevisionOfProxies(t *testing.T) {
	for want, annotations := range map[string]map[string]string{
		"":       nil,
		"canary": {names.AnnotationStatus: `{"containers":["istio-proxy"],"revision":"canary"}`, names.LabelRevision: "stable"},
		"stable": {names.LabelRevision: "stable", names.AnnotationStatus: "no JSON"},
	} {
		for _, phase := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodFailed} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "a", Annotations: annotations}, Status: corev1.PodStatus{Phase: phase},
			}
			o := &kinds.Object{Key: kinds.Key{Kind: kinds.Pod, Namespace: "a", Name: "a"}, Annotations: annotations, Spec: pod}
			cut := cutDown(t, newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{}), o)
			for what, f := range map[string]*kube.PodFacts{"the whole Pod": kube.PodFactsOf(pod, nil), "what is read": cut.Spec.(*kube.PodFacts)} {
				if f.Revision != want || f.Running != (phase == corev1.PodRunning) {
					t.Errorf("%v in phase %q: %+v of %s", annotations, phase, f, what)
				}
			}
			if cut.Annotations[names.AnnotationStatus] != "" {
				t.Errorf("kept %v", cut.Annotations)
			}
		}
	}
}

// difference compares what is exported; an empty map or list is none.
func difference(want, got any) string {
	unexported := cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && !token.IsExported(f.Name())
	}, cmp.Ignore())
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), unexported)
}

// What is kept beyond what the registry reads.
func TestKeptFields(t *testing.T) {
	s := &Source{seed: maphash.MakeSeed()}
	f := filler{rand.New(rand.NewPCG(1, 2))}
	for _, k := range coreKinds() {
		feed := newFeed(s, k, Restriction{})
		for range 100 {
			whole := f.wholeObject(k, name{"ns", "n"})
			o := cutDown(t, feed, whole)
			m := &metav1.ObjectMeta{Annotations: o.Annotations}
			if a, ok := o.Spec.(metav1.ObjectMetaAccessor); ok {
				m = a.GetObjectMeta().(*metav1.ObjectMeta)
			}
			if m.ResourceVersion != "" || m.ManagedFields != nil || m.Generation != 0 || m.Annotations[corev1.LastAppliedConfigAnnotation] != "" ||
				m.Finalizers != nil {
				t.Fatalf("%s: kept %+v", k.Name, m)
			}
			if o.Name != "n" || o.UID != whole.UID || !o.Created.Equal(whole.Created) {
				t.Fatalf("%s: %+v of %+v", k.Name, o, whole)
			}
			switch was := whole.Spec.(type) {
			case *corev1.Secret:
				got := o.Spec.(*corev1.Secret)
				if got.Type != was.Type || len(got.Data) != len(was.Data) || got.StringData != nil || got.Immutable != nil {
					t.Fatalf("%+v of %+v", got, was)
				}
				for key, v := range was.Data {
					if string(got.Data[key]) != string(v) {
						t.Fatalf("%+v of %+v", got, was)
					}
				}
			case *corev1.ConfigMap:
				got := o.Spec.(*corev1.ConfigMap)
				if difference(was.Data, got.Data) != "" || len(got.BinaryData) != len(was.BinaryData) {
					t.Fatalf("%+v of %+v", got, was)
				}
				for key := range was.BinaryData {
					if v, ok := got.BinaryData[key]; !ok || len(v) > 0 {
						t.Fatalf("%+v of %+v", got, was)
					}
				}
			case *corev1.Node:
				if got := o.Spec.(*corev1.Node); difference(was.Status.Addresses, got.Status.Addresses) != "" || got.Status.Images != nil {
					t.Fatalf("%+v of %+v", got, was)
				}
			case *corev1.Service:
				got := o.Spec.(*corev1.Service)
				if difference(was.Status.LoadBalancer, got.Status.LoadBalancer) != "" || got.Status.Conditions != nil {
					t.Fatalf("%+v of %+v", got, was)
				}
				was.Spec.SessionAffinityConfig = nil
				if difference(was.Spec, got.Spec) != "" {
					t.Fatalf("%+v of %+v", got, was)
				}
			case *discoveryv1.EndpointSlice:
				kept := map[string]string{}
				if text, ok := was.Annotations[kinds.AnnotationSuppress]; ok {
					kept[kinds.AnnotationSuppress] = text
				}
				if difference(kept, o.Annotations) != "" {
					t.Fatalf("kept %+v of %+v", o.Annotations, was.Annotations)
				}
			case *corev1.Pod:
				if _, ok := o.Spec.(*kube.PodFacts); !ok || o.Annotations["prometheus.io/scrape"] != "" {
					t.Fatalf("kept %+v", o)
				}
			}
		}
	}
}

// Pods of one workload share what they have in common.
func TestPodsShareStrings(t *testing.T) {
	feed := newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{})
	pod := func(n string) *kinds.Object {
		return cutDown(t, feed, &kinds.Object{Spec: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n, Namespace: "ns", Labels: map[string]string{"app": "a", "v": "1"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: n, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}},
		}})
	}
	a, b := pod("a"), pod("b")
	if reflect.ValueOf(a.Labels).Pointer() != reflect.ValueOf(b.Labels).Pointer() ||
		reflect.ValueOf(a.Spec.(*kube.PodFacts).Ports).Pointer() != reflect.ValueOf(b.Spec.(*kube.PodFacts).Ports).Pointer() {
		t.Error("two copies")
	}
	for i := range 3 * internMax {
		feed.intern.set(map[string]string{"k": fmt.Sprint(i)})
		feed.intern.text(fmt.Sprint("t", i))
	}
	if len(feed.intern.sets) > internMax || len(feed.intern.texts) > internMax {
		t.Error("what is remembered has no bound")
	}
}

func BenchmarkPod(b *testing.B) {
	f := filler{rand.New(rand.NewPCG(1, 2))}
	feed := newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{})
	var texts [][]byte
	for i := range 100 {
		text, err := f.wholeObject(kinds.Pod, name{"ns", fmt.Sprint(i)}).Spec.(*corev1.Pod).Marshal()
		must.Succeed(b, err)
		texts = append(texts, text)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		it, err := feed.item(texts[i%len(texts)], true)
		must.Succeed(b, err)
		if _, err := feed.object(it); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// A heartbeat of a node, or a pod's status that nobody reads, shows in its fingerprint.
func BenchmarkNothingNew(b *testing.B) {
	f := filler{rand.New(rand.NewPCG(1, 2))}
	feed := newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{})
	text, err := f.wholeObject(kinds.Pod, name{"ns", "a"}).Spec.(*corev1.Pod).Marshal()
	must.Succeed(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := feed.item(text, true); err != nil {
			b.Fatal(err)
		}
	}
}
