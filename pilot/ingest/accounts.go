package ingest

import (
	"cmp"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// accounts counts what may run as each service account, in any cluster: Pods that have not ended, WorkloadEntries, and
// WorkloadGroups, whose machines may be away for a while. A WorkloadEntry that this mesh wrote for the stream of a
// machine does not count beside its WorkloadGroup: whoever has the key of a certificate can open such a stream.
type accounts map[account]int

// registered is the annotation of WorkloadEntries that are written for a stream.
const registered = names.AnnotationRegistrationGroup

type account struct{ namespace, name string }

// replace takes in the change of an object. Either may be nil.
func (a accounts) replace(was, is *kinds.Object) {
	if of, ok := accountOf(was); ok {
		if a[of]--; a[of] == 0 {
			delete(a, of)
		}
	}
	if of, ok := accountOf(is); ok {
		a[of]++
	}
}

// accountOf returns the service account of what may run, and reports whether an object is such.
func accountOf(o *kinds.Object) (account, bool) {
	if o == nil {
		return account{}, false
	}
	name := ""
	switch o.Kind {
	case kinds.Pod:
		f := kube.FactsOfPod(o)
		if f.Ended {
			return account{}, false
		}
		name = f.ServiceAccount
	case kinds.WorkloadEntry:
		if o.Cluster == "" && o.Annotations[registered] != "" {
			return account{}, false
		}
		name = o.Spec.(*networkingv1.WorkloadEntry).GetServiceAccount()
	case kinds.WorkloadGroup:
		name = o.Spec.(*networkingv1.WorkloadGroup).GetTemplate().GetServiceAccount()
	default:
		return account{}, false
	}
	return account{o.Namespace, cmp.Or(name, "default")}, true
}

// HasAccount reports whether anything may run as a service account, whether or not it counts.
func (w *World) HasAccount(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts[account{namespace, name}] > 0
}
