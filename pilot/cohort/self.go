package cohort

import (
	"cmp"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Self is the input of the assignment of names.SelfCluster, besides the Client: a service of the proxy, and which of
// its endpoints are replicas of the proxy. It is zero if the proxy serves no service.
type Self struct {
	Host     string // of the service
	Port     uint32 // of the service
	Workload string // name of the workload, as endpoints have it
	Template string // value of templateLabel
	Rollout  string // value of rolloutLabel
	Region   string
}

// Labels of Pods whose values differ between the ReplicaSets of a Deployment and of an Argo Rollout. The Pods of one
// ReplicaSet receive equal shares of requests; Pods of two may not.
const (
	templateLabel = "pod-template-hash"
	rolloutLabel  = "rollouts-pod-template-hash"
)

// selfOf returns the Self of a workload. As in istiod, the oldest service is used, and its first port.
func selfOf(w *registry.Workload, targets frozen.List[Target], region string) Self {
	var first Target
	for t := range targets.All {
		if t.UDP {
			continue
		}
		if s, last := t.Service, first.Service; last == nil ||
			cmp.Or(s.Created.Compare(last.Created), cmp.Compare(s.Host, last.Host)) < 0 {
			first = t
		}
	}
	if first.Service == nil {
		return Self{}
	}
	return Self{
		Host: first.Service.Host, Port: first.Port, Region: region,
		Workload: w.Owner, Template: w.Labels[templateLabel], Rollout: w.Labels[rolloutLabel],
	}
}

// Includes reports whether an endpoint is a replica of the proxy. The zero Self includes every endpoint.
func (s Self) Includes(e *registry.Endpoint) bool {
	return s == Self{} || e.Workload == s.Workload && e.Labels[templateLabel] == s.Template && e.Labels[rolloutLabel] == s.Rollout &&
		e.Locality.Region == s.Region
}
