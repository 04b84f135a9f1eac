package ui

import "github.com/istiod-lite/istiod-lite/pilot/debug"

// replica is how one replica of the control plane stands.
type replica struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty if it did not answer
	Error   string `json:"error,omitempty"`   // why it did not
	Self    bool   `json:"self,omitempty"`    // it is the one that shows this page
}

// makeOthers asks the other replicas which proxies they serve.
func (u *UI) makeOthers() []debug.Replica {
	if u.o.Replicas == nil {
		return nil
	}
	return debug.ReplicasOf(u.o.Replicas.Ask(u.closing, "syncz"))
}

// elsewhere returns the rows of the proxies that other replicas serve.
func (u *UI) elsewhere() (list []proxyRow) {
	others, _ := u.others.get(u.o.Now)
	proxies, _ := debug.ReadProxies(others) // which fails for the answer of this replica alone
	for i := range proxies {
		list = append(list, rowElsewhere(&proxies[i]))
	}
	return list
}

// replicas returns all replicas, this one first; none if there are no others.
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
