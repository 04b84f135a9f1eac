package ui

import "github.com/istiod-lite/istiod-lite/pilot/debug"

// replica is the status of one replica of the control plane.
type replica struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty if it did not answer
	Error   string `json:"error,omitempty"`   // why it did not answer
	Self    bool   `json:"self,omitempty"`    // the replica that serves this page
}

// makeOthers asks the other replicas for the proxies that they serve.
func (u *UI) makeOthers() []debug.Replica {
	if u.o.Replicas == nil {
		return nil
	}
	return debug.ReplicasOf(u.o.Replicas.Ask(u.closing, "syncz"))
}

// elsewhere returns the rows of the proxies that other replicas serve.
func (u *UI) elsewhere() (list []proxyRow) {
	others, _ := u.others.get(u.o.Now)
	proxies, _ := debug.ReadProxies(others) // fails only for an answer of this replica
	for i := range proxies {
		list = append(list, rowElsewhere(&proxies[i]))
	}
	return list
}

// replicas returns all replicas, this one first, or none if there are no others.
func (u *UI) replicas() []replica {
	others, _ := u.others.get(u.o.Now)
	if len(others) == 0 {
		return nil
	}
	list := []replica{{Name: u.o.Name, Version: u.o.Version, Self: true}}
	for _, r := range others {
		list = append(list, replica{Name: r.Name, Version: r.Version, Error: r.Error})
	}
	return list
}
