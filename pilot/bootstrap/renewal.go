package bootstrap

import (
	"fmt"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// renew returns an error unless a caller may have another certificate by the one that it shows: something may run as
// its account. Where no Pods are read, every caller may. While a cluster cannot be read, the caller is to ask again.
func (s *Server) renew(caller identity.Peer) error {
	id := caller.ID
	if s.o.Client == nil || s.o.NoServices || s.world.HasAccount(id.Namespace, id.ServiceAccount) {
		return nil
	}
	for _, c := range s.from.Clusters() {
		for _, k := range []*kinds.Kind{kinds.Pod, kinds.WorkloadEntry, kinds.WorkloadGroup} {
			if !s.from.Current(c.ID, k) {
				return fmt.Errorf("%w: it is not known which objects of kind %s cluster %s has now", authenticate.ErrUnavailable, k.Name, c.ID)
			}
		}
	}
	return fmt.Errorf("no Pod, WorkloadEntry or WorkloadGroup in namespace %s has the service account %s; a token proves it", id.Namespace, id.ServiceAccount)
}
