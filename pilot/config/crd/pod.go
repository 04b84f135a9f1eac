package crd

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// head is the metadata of a core object that is read.
type head struct {
	name
	uid                 string
	labels, annotations map[string]string
	created             time.Time
}

// decodePod decodes the facts of a masked Pod directly. A corev1.Pod would need ten times the memory temporarily, and a
// mesh has more pods than other objects. The numbers are the field numbers of the API's generated.proto.
func decodePod(masked []byte, in *interner) (h head, spec any, err error) {
	f := &kube.PodFacts{ServiceAccount: "default", Ready: true} // the defaults of a pod
	var kind, controller string
	generated := false
	h, err = readMetaHead(fieldOf(masked, 1), in, func(number protowire.Number, value []byte) {
		switch {
		case number == 2:
			generated = len(value) > 0
		case number == 9:
			f.Deleting = true
		case number == 12:
			f.Revision = in.revision(fieldOf(value, 2))
		case number == 13 && kind == "": // the mask keeps only controllers; the first one is the owner
			kind, controller = string(fieldOf(value, 1)), string(fieldOf(value, 3))
		}
	})
	if err == nil {
		err = podSpec(f, fieldOf(masked, 2), in)
	}
	if err == nil {
		err = podStatus(f, fieldOf(masked, 3))
	}
	f.Ready = f.Ready && !f.Deleting && !f.Ended
	f.Revision = cmp.Or(f.Revision, h.annotations[names.LabelRevision])
	f.Owner = in.text(kube.WorkloadName(h.name.name, generated, h.labels, kind, controller))
	return h, f, err
}

func readMetaHead(meta []byte, in *interner, more func(protowire.Number, []byte)) (h head, err error) {
	var labels, annotations [][]byte
	err = eachField(meta, func(number protowire.Number, _, v []byte) error {
		switch number {
		case 1:
			h.name.name = string(v)
		case 3:
			h.namespace = in.bytes(v)
		case 5:
			h.uid = string(v)
		case 8:
			if seconds := int64(varint(v, 1)); seconds != 0 || varint(v, 2) != 0 {
				h.created = time.Unix(seconds, 0).Local()
			}
		case 11:
			labels = append(labels, v)
		case 12:
			if string(fieldOf(v, 1)) == names.AnnotationStatus { // more reads it, and it is not kept
				more(number, v)
				break
			}
			annotations = append(annotations, v)
		default:
			more(number, v)
		}
		return nil
	})
	h.labels, h.annotations = in.entries(labels), in.entries(annotations)
	return h, err
}

func podSpec(f *kube.PodFacts, spec []byte, in *interner) error {
	var sidecars, all [][]byte
	ports := func(container []byte) error {
		if isProxy(container) {
			f.ProxyImage = in.bytes(fieldOf(container, 2))
		}
		return eachField(container, func(number protowire.Number, _, v []byte) error {
			if number == 6 {
				all = append(all, v)
			}
			return nil
		})
	}
	err := eachField(spec, func(number protowire.Number, text, v []byte) error {
		switch number {
		case 2:
			return ports(v)
		case 8:
			if len(v) > 0 {
				f.ServiceAccount = in.bytes(v)
			}
		case 10:
			f.NodeName = in.bytes(v)
		case 11:
			f.HostNetwork = isSet(text)
		case 16:
			f.Hostname = string(v)
		case 17:
			f.Subdomain = in.bytes(v)
		case 20:
			if string(fieldOf(v, 24)) == string(corev1.ContainerRestartPolicyAlways) {
				sidecars = append(sidecars, v)
			}
		}
		return nil
	})
	for _, container := range sidecars {
		if err == nil {
			err = ports(container)
		}
	}
	f.Ports = in.podPorts(all)
	return err
}

func podStatus(f *kube.PodFacts, status []byte) error {
	if primary := fieldOf(status, 6); len(primary) > 0 {
		f.Addresses = append(f.Addresses, string(primary))
	}
	said := false
	return eachField(status, func(number protowire.Number, _, v []byte) error {
		switch number {
		case 1:
			f.Failed = string(v) == string(corev1.PodFailed)
			f.Ended, f.Running = f.Failed || string(v) == string(corev1.PodSucceeded), string(v) == string(corev1.PodRunning)
		case 2: // the mask keeps only the condition Ready
			if !said {
				said, f.Ready = true, string(fieldOf(v, 2)) == string(corev1.ConditionTrue)
			}
		case 12:
			if ip := string(fieldOf(v, 1)); ip != "" && !slices.Contains(f.Addresses, ip) {
				f.Addresses = append(f.Addresses, ip)
			}
		}
		return nil
	})
}

// varint returns the last value of a varint field in a message, or 0.
func varint(message []byte, field protowire.Number) uint64 {
	out, _ := varintOf(message, field)
	return out
}

// varintOf returns the last value of a varint field, and reports whether the message has the field.
func varintOf(message []byte, field protowire.Number) (out uint64, has bool) {
	_ = eachField(message, func(number protowire.Number, text, _ []byte) error {
		if number == field {
			_, _, n := protowire.ConsumeTag(text)
			out, _ = protowire.ConsumeVarint(text[n:])
			has = true
		}
		return nil
	})
	return out, has
}

// isSet decodes a bool field.
func isSet(field []byte) bool { return field[len(field)-1] == 1 }
