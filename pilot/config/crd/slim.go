package crd

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ingressv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// core describes how objects of a core kind are reduced to the parts that are read, and decoded. The numbers in masks
// are the field numbers of the API's generated.proto.
type core struct {
	mask   *mask
	decode func(masked []byte, in *interner) (head, any, error)
	// protobuf encodes JSON as protobuf, for API servers or proxies that answer in JSON.
	protobuf func(json []byte) ([]byte, error)
}

// message is the interface of the API's types.
type message[T any] interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
	metav1.ObjectMetaAccessor
}

// coreKind returns a core with masks for the metadata and the other fields. slim converts a decoded object.
func coreKind[T any, P message[T]](meta *mask, kept *fields, slim func(P, *interner) any) *core {
	kept[1] = meta
	return &core{
		mask: &mask{fields: kept},
		decode: func(masked []byte, in *interner) (head, any, error) {
			o := P(new(T))
			if err := o.Unmarshal(masked); err != nil {
				return head{}, nil, err
			}
			m := o.GetObjectMeta().(*metav1.ObjectMeta)
			in.meta(m)
			return head{name{m.Namespace, m.Name}, string(m.UID), m.Labels, m.Annotations, m.CreationTimestamp.Time}, slim(o, in), nil
		},
		protobuf: func(text []byte) ([]byte, error) {
			o := P(new(T))
			if err := json.Unmarshal(text, o); err != nil {
				return nil, err
			}
			return o.Marshal()
		},
	}
}

// coreOf returns the core of a kind, or nil if a CustomResourceDefinition defines the kind.
func coreOf(k *kinds.Kind) *core {
	switch k {
	case kinds.Pod:
		meta := metadata(oursOrStatus)
		// generateName, deletionTimestamp
		meta.fields[2], meta.fields[9] = whole(), whole()
		// ownerReferences: kind, name, controller
		meta.fields[13] = &mask{fields: wholes(1, 3, 6), when: func(owner []byte) bool { return isTrue(owner, 6) }}
		// name, containerPort, protocol
		ports := &mask{fields: wholes(1, 3, 4), when: func(port []byte) bool { return len(fieldOf(port, 1)) > 0 }}
		// name, image, ports, restartPolicy
		proxy := &mask{fields: &fields{1: whole(), 2: whole(), 6: ports, 24: whole()}}
		containers := &mask{fields: &fields{
			6: ports, 24: whole(),
		}, when: func(c []byte) bool { return fieldOf(c, 6) != nil }, instead: func(c []byte) *mask {
			if isProxy(c) {
				return proxy
			}
			return nil
		}}
		spec := wholes(8, 10, 11, 16, 17) // serviceAccountName, nodeName, hostNetwork, hostname, subdomain
		spec[2], spec[20] = containers, containers
		// phase, podIP, podIPs
		status := wholes(1, 6, 12)
		// conditions: type, status
		status[2] = &mask{fields: wholes(1, 2), when: func(c []byte) bool { return string(fieldOf(c, 1)) == string(corev1.PodReady) }}
		out := coreKind(meta, &fields{2: {fields: spec}, 3: {fields: status}}, asIs[*corev1.Pod])
		out.decode = decodePod
		return out
	case kinds.Service:
		spec := wholes(1, 2, 3, 18, 4, 5, 7, 8, 9, 9, 10, 11, 12, 13, 19, 17, 20, 21, 22, 23) // all but sessionAffinityConfig
		return coreKind(metadata(notApplied), &fields{2: {fields: spec}, 3: {fields: wholes(1)}}, func(s *corev1.Service, in *interner) any {
			s.Spec.Selector = in.set(s.Spec.Selector)
			return s
		})
	case kinds.EndpointSlice:
		// The labels are copies of the service's, and most annotations are times of changes.
		meta := metadata(isKey(kinds.AnnotationSuppress)) // the labels are copies of the service's, the other annotations times of changes
		meta.fields[11] = keyed(isKey(discoveryv1.LabelServiceName))
		endpoint := wholes(1, 2, 3, 6)               // addresses, conditions, hostname, nodeName
		endpoint[4] = &mask{fields: wholes(1, 2, 3)} // targetRef: kind, namespace, name
		kept := wholes(4)                            // addressType
		kept[2] = &mask{fields: endpoint}
		kept[3] = &mask{fields: wholes(1, 3)} // ports: name, port
		out := coreKind(meta, kept, asIs[*discoveryv1.EndpointSlice])
		out.decode = decodeSlice
		return out
	case kinds.Node:
		status := wholes(5)                  // addresses
		status[7] = &mask{fields: wholes(7)} // the kubelet's version
		return coreKind(metadata(ours), &fields{3: {fields: status}}, asIs[*corev1.Node])
	case kinds.Ingress:
		return coreKind(metadata(isKey(kinds.AnnotationIngressClass)), &fields{2: whole(), 3: {fields: wholes(1)}}, asIs[*ingressv1.Ingress])
	case kinds.IngressClass:
		return coreKind(metadata(nil), &fields{2: {fields: wholes(1)}}, asIs[*ingressv1.IngressClass]) // controller
	case kinds.Namespace:
		return coreKind(metadata(notApplied), &fields{}, asIs[*corev1.Namespace])
	case kinds.ConfigMap:
		kept := wholes(2)
		kept[3] = &mask{fields: wholes(1)} // the keys of binaryData
		return coreKind(metadata(notApplied), kept, asIs[*corev1.ConfigMap])
	case kinds.Secret:
		return coreKind(metadata(notApplied), wholes(2, 3), asIs[*corev1.Secret])
	}
	return nil
}

// isProxy reports whether a container is the proxy that injection adds.
func isProxy(container []byte) bool { return string(fieldOf(container, 1)) == kube.ProxyContainer }

// metadata selects name, namespace, uid, creationTimestamp, labels, and the annotations that keep accepts.
func metadata(keep func(key []byte) bool) *mask {
	out := &mask{fields: wholes(1, 3, 5, 8, 11)}
	if keep != nil {
		out.fields[12] = keyed(keep)
	}
	return out
}

// notApplied selects all annotations except kubectl's copy of the object.
func notApplied(key []byte) bool { return string(key) != corev1.LastAppliedConfigAnnotation }

// ours selects Istio's annotations, except the injector's status. Pods and nodes have many others, which are not read
// and change often.
func ours(key []byte) bool {
	domain, _, _ := bytes.Cut(key, []byte("/"))
	return bytes.HasSuffix(domain, []byte("istio.io")) && string(key) != names.AnnotationStatus
}

// oursOrStatus selects what ours selects, and the annotation with the injector's status.
func oursOrStatus(key []byte) bool { return ours(key) || string(key) == names.AnnotationStatus }

func isTrue(message []byte, number protowire.Number) bool {
	set := false
	_ = eachField(message, func(n protowire.Number, text, _ []byte) error {
		if n == number {
			set = isSet(text)
		}
		return nil
	})
	return set
}

func asIs[P any](o P, _ *interner) any { return o }

// interner returns one copy of equal strings, label sets and ports, which pods of a workload mostly share. The results
// must not be modified. Only one goroutine may use it.
type interner struct {
	texts map[string]string
	sets  map[string]map[string]string // by all keys and values
	ports map[string]map[string]uint32
	// revisions has the revisions that the injector's statuses name, by status.
	revisions map[string]string
	buf       []byte
}

// internMax bounds each table. A full table is cleared, and fills again with the values in use.
const internMax = 1 << 13

func newInterner() *interner {
	return &interner{
		texts: map[string]string{}, sets: map[string]map[string]string{}, ports: map[string]map[string]uint32{}, revisions: map[string]string{},
	}
}

func (in *interner) text(s string) string {
	if s == "" {
		return ""
	}
	return intern(in.texts, in.key(s), func() string { return s })
}

func (in *interner) key(s string) []byte {
	in.buf = append(in.buf[:0], s...)
	return in.buf
}

// bytes interns a string without copying it first.
func (in *interner) bytes(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return intern(in.texts, b, func() string { return string(b) })
}

// revision returns the revision that a status of the injector names. Most Pods share a few statuses.
func (in *interner) revision(status []byte) string {
	return intern(in.revisions, status, func() string { return kube.RevisionOfStatus(string(status)) })
}

func (in *interner) set(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	in.buf = in.buf[:0]
	for _, k := range slices.Sorted(maps.Keys(m)) {
		in.buf = append(append(append(append(in.buf, k...), 0), m[k]...), 0)
	}
	return intern(in.sets, in.buf, func() map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[in.bytes([]byte(k))] = in.bytes([]byte(v))
		}
		return out
	})
}

// entries interns the entries of a map in protobuf.
func (in *interner) entries(list [][]byte) map[string]string {
	if len(list) == 0 {
		return nil
	}
	in.join(list)
	return intern(in.sets, in.buf, func() map[string]string {
		out := make(map[string]string, len(list))
		for _, entry := range list {
			out[in.bytes(fieldOf(entry, 1))] = in.bytes(fieldOf(entry, 2))
		}
		return out
	})
}

// podPorts interns the ContainerPorts of a pod.
func (in *interner) podPorts(list [][]byte) map[string]uint32 {
	return in.numbers(list, func() map[string]uint32 {
		f := kube.PodFacts{}
		for _, v := range list {
			f.AddPort(in.bytes(fieldOf(v, 1)), string(fieldOf(v, 4)), uint32(varint(v, 3)))
		}
		return f.Ports
	})
}

// slicePorts interns the EndpointPorts of a slice.
func (in *interner) slicePorts(list [][]byte) map[string]uint32 {
	return in.numbers(list, func() map[string]uint32 {
		s := kube.SliceFacts{}
		for _, v := range list {
			if port, ok := varintOf(v, 3); ok {
				s.AddPort(in.bytes(fieldOf(v, 1)), uint32(port))
			}
		}
		return s.Ports
	})
}

func (in *interner) numbers(list [][]byte, read func() map[string]uint32) map[string]uint32 {
	if len(list) == 0 {
		return nil
	}
	in.join(list)
	return intern(in.ports, in.buf, read)
}

// join sets buf to a key for messages.
func (in *interner) join(list [][]byte) {
	in.buf = in.buf[:0]
	for _, m := range list {
		in.buf = protowire.AppendBytes(in.buf, m)
	}
}

func intern[V any](table map[string]V, key []byte, make func() V) V {
	if have, ok := table[string(key)]; ok {
		return have
	}
	if len(table) >= internMax {
		clear(table)
	}
	k := string(key) // copied before make, which may overwrite key's buffer
	out := make()
	table[k] = out
	return out
}

// meta interns the metadata that objects share.
func (in *interner) meta(m *metav1.ObjectMeta) {
	m.Namespace, m.Labels = in.text(m.Namespace), in.set(m.Labels)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
}
