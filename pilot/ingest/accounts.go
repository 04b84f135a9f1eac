package ingest

import (
	"cmp"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// accounts holds the number of objects that can run as each service account, in any cluster: Pods that have not ended,
// WorkloadEntries, and WorkloadGroups, whose machines may be disconnected for a while. It ignores a WorkloadEntry that
// this mesh registered for the stream of a machine, because any client with the certificate's key can open such a
// stream. The WorkloadGroup is what allows the machine.
type accounts map[account]int

// registered is the annotation of WorkloadEntries that the mesh writes for a stream.
const registered = names.AnnotationRegistrationGroup

type account struct{ namespace, name string }

// replace applies the change of an object. Either object may be nil.
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

// accountOf returns the service account that an object runs as, and false if the object does not run anything.
func accountOf(o *kinds.Object) (account, bool) {
	if o == nil {
		return account{}, false
	}
	var name string
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

// HasAccount reports whether any object, accepted or not, can run as the service account.
func (w *World) HasAccount(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts[account{namespace, name}] > 0
}
