package inspect

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// addressOf looks up the address of a connection as the application's DNS would. It returns the service, or nil if
// there is none.
func (i *Inspection) addressOf(w *Way, q Query, from *sender) *registry.Service {
	if ip, err := netip.ParseAddr(q.Host); err == nil {
		w.Address = q.Host
		s := i.nearest(from, func(yield func(*registry.Service) bool) {
			for s := range i.Snapshot.EachService {
				if (slices.Contains(s.Addresses, q.Host) || slices.Contains(s.AutoAddress, q.Host) || inRange(s, ip)) && !yield(s) {
					return
				}
			}
		})
		if s != nil {
			w.Service = s.Host
		}
		return s
	}
	s := i.serviceOf(q.Host, from)
	if s == nil {
		if s, w.Address = i.podOf(q.Host, from); s != nil {
			w.Service = s.Host
		}
		return s
	}
	w.Service = s.Host
	switch {
	case !from.proxied && s.Provider != registry.Kubernetes: // the application's DNS knows no ServiceEntry
	case len(s.Addresses) > 0 && !strings.Contains(s.Addresses[0], "/"):
		w.Address = s.Addresses[0]
		for _, a := range s.Addresses { // a Pod can only call addresses of its own families
			if slices.ContainsFunc(from.IPs, func(ip string) bool { return strings.Contains(ip, ":") == strings.Contains(a, ":") }) {
				w.Address = a
				break
			}
		}
	case len(s.AutoAddress) > 0 && from.DNSCapture && from.DNSAutoAllocate: // otherwise DNS answers from outside the configuration
		w.Address = s.AutoAddress[0]
	case s.Headless:
		w.Address = cmp.Or(q.address, first(i.headless(s, from.Cluster)))
	case s.Resolution == registry.Alias:
		if target := i.serviceAt(s.ExternalName); target != nil {
			w.Address = first(target.Addresses)
		}
	}
	return s
}

// headless returns the addresses that DNS has for a headless service in a cluster.
func (i *Inspection) headless(s *registry.Service, cluster string) (list []string) {
	for _, e := range i.Snapshot.Endpoints(s.Key()).List {
		if (e.Health == registry.Healthy || s.PublishNotReady) && e.CallableFrom(cluster) && !slices.Contains(list, e.Address) {
			list = append(list, e.Address)
		}
	}
	return list
}

// maxAddresses bounds the addresses of a headless service to which a request is followed.
const maxAddresses = 64

// atOthers adds what the answer is at the other addresses of a headless service, if it is not the same.
func (i *Inspection) atOthers(w *Way, q Query, s *registry.Service, from *sender) error {
	if s == nil || !s.Headless || q.address != "" || q.logged || len(w.Outbound.Targets) == 0 && w.Status == 200 {
		return nil
	}
	all := i.headless(s, from.Cluster)
	if !slices.Contains(all, w.Address) || len(w.Arrivals) > 1 { // a Pod's own name, or the proxy chooses the endpoint
		return nil
	}
	if len(all) > maxAddresses {
		w.Depends = append(w.Depends, fmt.Sprintf("DNS has %d addresses for %s, and the request is followed to %d of them", len(all), s.Host,
			maxAddresses))
		all = all[:maxAddresses]
	}
	for _, q.address = range all {
		if q.address == w.Address {
			continue
		}
		other, err := i.Why(q)
		if err != nil {
			return err
		}
		if end := (outcome{other.Status, other.Reason, other.Answered, nil}); end.reaches() != w.mayReach() {
			w.Depends = append(w.Depends, fmt.Sprintf("DNS may give %s for %s, where %s", q.address, s.Host, end))
		}
		for _, text := range other.Depends {
			if !slices.Contains(w.Depends, text) {
				w.Depends = append(w.Depends, text)
			}
		}
	}
	return nil
}

// serviceOf returns the service that a host names for a workload, or nil.
func (i *Inspection) serviceOf(host string, from *sender) *registry.Service {
	for _, name := range i.fullNames(host, from.Namespace) {
		if s := i.nearest(from, i.Snapshot.ServicesByHost(name)); s != nil {
			return s
		}
	}
	return nil
}

// fullNames returns the hosts that a host may stand for in a namespace, as the DNS of the cluster tries them.
func (i *Inspection) fullNames(host, namespace string) []string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return []string{host, host + "." + namespace + ".svc." + i.o.Domain, host + ".svc." + i.o.Domain, host + "." + i.o.Domain}
}

// nearest returns the service that a workload uses of several: the one that its proxy is sent, or else one of
// Kubernetes, whose name and address the cluster knows without the proxy.
func (i *Inspection) nearest(from *sender, all iter.Seq[*registry.Service]) (found *registry.Service) {
	visible, _ := i.translator.Visible(i.Snapshot, from.Proxy)
	for s := range all {
		if own := visible.ServiceByHost(s.Host); own != nil && own.Key() == s.Key() {
			found = s
			break
		}
		if found == nil && s.Provider == registry.Kubernetes {
			found = s
		}
	}
	if found == nil {
		return nil
	}
	return cmp.Or(found.ClusterVersion(""), found)
}

// unseen returns why the proxy of a workload is not sent a port of a service, or "" if it is.
func (i *Inspection) unseen(from *sender, s *registry.Service, port uint32) string {
	visible, _ := i.translator.Visible(i.Snapshot, from.Proxy)
	exported, imported := visible.SeesService(s, port)
	own := visible.ServiceByHost(s.Host)
	switch {
	case !exported && s.Provider == registry.External && i.Snapshot.Mesh.EntryVisibility() != nil:
		return fmt.Sprintf("its exportTo does not have namespace %s, or the mesh's serviceEntryVisibility does not allow it", from.Namespace)
	case !exported:
		return fmt.Sprintf("its exportTo does not have namespace %s", from.Namespace)
	case imported:
		return ""
	case own != nil && own.Key() != s.Key():
		return fmt.Sprintf("namespace %s uses %s, which has the host too", from.Namespace, i.objectOf(own))
	case visible.Sidecar != nil:
		if field := visible.Exclusion(s.Namespace, s.Host); field != "" {
			return i.Where(visible.Sidecar.Key, field) + " excludes it"
		}
		return i.Where(visible.Sidecar.Key, "") + " does not import it"
	}
	return ""
}

// others returns notes about the services of a host that have a port and that the proxy of a workload is not sent.
func (i *Inspection) others(from *sender, host string, port uint32) (notes []string) {
	for _, name := range i.fullNames(host, from.Namespace) {
		for s := range i.Snapshot.ServicesByHost(name) {
			if reason := i.unseen(from, s, port); reason != "" && hasPort(s, port) {
				notes = append(notes, fmt.Sprintf("%s has port %d of %s, and the proxy of %s.%s is not sent it: %s", i.objectOf(s), port, s.Host,
					from.Name, from.Namespace, reason))
			}
		}
	}
	return notes
}

// keyOf returns the key of the object that a service is made from.
func keyOf(s *registry.Service) kinds.Key {
	kind := kinds.ServiceEntry
	if s.Provider == registry.Kubernetes {
		kind = kinds.Service
	}
	return kinds.Key{Kind: kind, Namespace: s.Namespace, Name: s.Object}
}

// objectOf returns the object that a service is made from, with its position.
func (i *Inspection) objectOf(s *registry.Service) string { return i.Where(keyOf(s), "") }

// podOf returns the headless service in which a Pod has a name of its own, HOSTNAME.SERVICE, and the Pod's address.
func (i *Inspection) podOf(host string, from *sender) (*registry.Service, string) {
	name, rest, _ := strings.Cut(strings.ToLower(host), ".")
	s := i.serviceOf(rest, from)
	if rest == "" || s == nil || !s.Headless {
		return nil, ""
	}
	if address := i.podNamed(name, s); address != "" {
		return s, address
	}
	return nil, ""
}

// podNamed returns the address of the Pod with a name in a headless service, or "".
func (i *Inspection) podNamed(name string, s *registry.Service) string {
	for _, o := range i.objectsOf(kinds.Pod) {
		if f := kube.FactsOfPod(o); o.Namespace == s.Namespace && f.Hostname == name && f.Subdomain == s.Name && len(f.Addresses) > 0 {
			return f.Addresses[0]
		}
	}
	return ""
}

// podAddress returns the address that the DNS of the cluster has for the whole name of a Pod in a headless service, or
// "" for other names.
func (i *Inspection) podAddress(host string) string {
	name, rest, _ := strings.Cut(strings.ToLower(host), ".")
	if s := i.serviceAt(rest); s != nil && s.Headless {
		return i.podNamed(name, s)
	}
	return ""
}

// unresolved returns why an application finds no address for a host. It is empty if the application finds one or if
// that is not known.
func (i *Inspection) unresolved(w *Way, q Query, from *sender, s *registry.Service) string {
	if s == nil || !s.Headless || w.Address != "" || from.Generator == node.GRPC || from.Type == node.Router && from.proxied {
		return ""
	}
	if i.serviceOf(q.Host, from) != s {
		return ""
	}
	return fmt.Sprintf("DNS has no address for %s: %s is headless, and no endpoint of it is ready", q.Host, s.Host)
}

// resolvedOutside returns a sentence that says that an application finds the address of a host only by DNS outside the
// mesh, or "" if the DNS of the cluster or the application's own proxy knows the host.
func (i *Inspection) resolvedOutside(w *Way, q Query, from *sender, s *registry.Service) string {
	_, err := netip.ParseAddr(q.Host)
	switch {
	case err == nil, q.logged, from.Generator == node.GRPC, from.Type == node.Router && from.proxied:
		return ""
	case s != nil && s.Provider == registry.Kubernetes && !clusterset.IsHost(s.Host):
		return ""
	case s != nil && from.proxied && from.DNSCapture && w.Address != "", i.podAddress(q.Host) != "":
		return ""
	}
	text := fmt.Sprintf("%s.%s finds the address of %s only if DNS outside the mesh has it", from.Name, from.Namespace, q.Host)
	if w.Address != "" && !w.Outbound.HTTP { // listeners of HTTP take connections to any address
		text += " as " + w.Address
	}
	if s == nil || s.MeshExternal || !from.proxied {
		return text
	}
	need := "ISTIO_META_DNS_CAPTURE"
	if len(s.Addresses) == 0 {
		need += " and ISTIO_META_DNS_AUTO_ALLOCATE"
	}
	return fmt.Sprintf("%s; with %s in its proxyMetadata, its proxy answers for %s", text, need, i.objectOf(s))
}

// hasPort reports whether a service has a port that takes connections.
func hasPort(s *registry.Service, port uint32) bool {
	return s != nil && slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return p.Number == port && p.Protocol != protocols.UDP })
}

// rangesOf returns the ranges of addresses (CIDRs) of a service.
func rangesOf(s *registry.Service) []string {
	if s == nil {
		return nil
	}
	return lists.Filter(s.Addresses, func(a string) bool { return strings.Contains(a, "/") })
}

// inRange reports whether a service has a range with an address.
func inRange(s *registry.Service, ip netip.Addr) bool {
	return slices.ContainsFunc(rangesOf(s), func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip.Unmap())
	})
}

// nearHosts suggests hosts of services with a similar name, as they are written in a namespace. It is empty if none is
// similar.
func (i *Inspection) nearHosts(host, namespace string) string {
	const few = 3
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	best := map[string]int{}
	for s := range i.Snapshot.EachService {
		written, forms := s.Host, []string{s.Host}
		if s.Provider == registry.Kubernetes {
			short := s.Name + "." + s.Namespace
			written = short
			forms = append(forms, short, short+".svc")
			if s.Namespace == namespace {
				written, forms = s.Name, append(forms, s.Name)
			} else if s.Name == host { // the service is in another namespace
				best[written] = 0
				continue
			}
		}
		for _, form := range forms {
			d := diag.Distance(form, host)
			if had, ok := best[written]; d <= max(1, min(3, len(host)/4)) && (!ok || d < had) {
				best[written] = d
			}
		}
	}
	list := slices.SortedFunc(maps.Keys(best), func(a, b string) int { return cmp.Or(cmp.Compare(best[a], best[b]), cmp.Compare(a, b)) })
	if len(list) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(list[:min(few, len(list))], " or ") + "?"
}

// nearPort suggests a port with a similar name.
func nearPort(s *registry.Service, name string) string {
	all := lists.Map(s.Ports, func(p registry.Port) string { return p.Name })
	if near := diag.Nearest(name, all); near != "" {
		return "; " + diag.DidYouMean(near)
	}
	return ""
}

// portsOf names the ports of a service.
func portsOf(s *registry.Service) string {
	list := lists.Map(s.Ports, func(p registry.Port) string { return fmt.Sprintf("%d (%s)", p.Number, p.Name) })
	return cmp.Or(strings.Join(list, ", "), "none")
}

// ofPods says which port of a service leads to a given port of its Pods, in case a user took the one for the other.
func ofPods(s *registry.Service, port uint32) string {
	for _, p := range s.Ports {
		if p.TargetPort == strconv.Itoa(int(port)) {
			return fmt.Sprintf("; %d is the port of its Pods: did you mean %d?", port, p.Number)
		}
	}
	return ""
}
