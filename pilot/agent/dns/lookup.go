package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// ttl is for how long, in seconds, clients may remember an answer of the table.
const ttl = 30

// lookup is a NameTable made ready for queries. All names are in lower case and end with a dot. It never changes.
type lookup struct {
	encoded []byte // the table, for people who ask for it
	names   map[string]*addresses
	below   map[string]*addresses // wildcards, without their "*."
	search  string                // the first search domain, ".ns.svc.cluster.local.", or empty
}

// addresses are those of one name.
type addresses struct{ v4, v6 []netip.Addr }

// newLookup makes the lookup for a proxy of a namespace. The search domain has no dots around it.
func newLookup(t *NameTable, namespace, search string) *lookup {
	l := &lookup{names: make(map[string]*addresses, len(t.Table)), below: map[string]*addresses{}}
	if search = strings.Trim(search, "."); search != "" {
		l.search = "." + strings.ToLower(search) + "."
	}
	names := t.names()
	made := make([]*addresses, len(names))
	for i, name := range names {
		made[i] = parse(t.Table[name].IPs)
		l.names[absolute(name)] = made[i]
		if above, ok := strings.CutPrefix(absolute(name), "*."); ok {
			l.below[above] = made[i]
		}
	}
	for i, name := range names { // a full name counts before a short one
		for _, short := range alternatives(name, t.Table[name], namespace) {
			if _, ok := l.names[absolute(short)]; !ok {
				l.names[absolute(short)] = made[i]
			}
		}
	}
	return l
}

// alternatives returns by which other names a service is known: those that the control plane says, or for Kubernetes
// its name with the parts of its domain, and its name alone in its own namespace.
func alternatives(name string, i *NameInfo, own string) []string {
	if len(i.AltHosts) > 0 || i.Registry != "Kubernetes" || i.ShortName == "" || i.Namespace == "" {
		return i.AltHosts
	}
	full := i.ShortName + "." + i.Namespace
	list := []string{full}
	if strings.HasPrefix(name, full+".svc.") {
		list = append(list, full+".svc")
	}
	if i.Namespace == own {
		list = append(list, i.ShortName)
	}
	return list
}

// absolute returns a name in lower case, with one dot at its end.
func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

func parse(ips []string) *addresses {
	a := &addresses{}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		switch ip = ip.Unmap(); {
		case err != nil: // a control plane that sends it has said so to its own users
		case ip.Is4():
			a.v4 = append(a.v4, ip)
		default:
			a.v6 = append(a.v6, ip)
		}
	}
	return a
}

// answer returns the records for a question, and whether the table has its name. A question for a type other than A and
// AAAA is not for the table.
func (l *lookup) answer(q dns.Question) ([]dns.RR, bool) {
	if q.Qclass != dns.ClassINET || q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA {
		return nil, false
	}
	name := strings.ToLower(q.Name)
	if a := l.find(name); a != nil {
		return a.records(nil, q.Name, q.Qtype), true
	}
	if l.search == "" || !strings.HasSuffix(name, l.search) {
		return nil, false
	}
	short := name[:len(name)-len(l.search)+1]
	a := l.find(short)
	if a == nil {
		return nil, false
	}
	alias := &dns.CNAME{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: ttl}, Target: short}
	return a.records([]dns.RR{alias}, short, q.Qtype), true
}

// find returns the addresses of a name, or of the longest wildcard above it; nil where there is neither.
func (l *lookup) find(name string) *addresses {
	if a := l.names[name]; a != nil {
		return a
	}
	// Names of the mesh have no escaped dots in their labels.
	for len(l.below) > 0 {
		_, above, ok := strings.Cut(name, ".")
		if !ok || above == "" {
			break
		}
		if a := l.below[above]; a != nil {
			return a
		}
		name = above
	}
	return nil
}

// records appends the addresses of one family, in random order.
func (a *addresses) records(to []dns.RR, name string, qtype uint16) []dns.RR {
	list := a.v4
	if qtype == dns.TypeAAAA {
		list = a.v6
	}
	header := dns.RR_Header{Name: name, Rrtype: qtype, Class: dns.ClassINET, Ttl: ttl}
	if len(list) == 1 {
		return append(to, record(header, list[0]))
	}
	for _, i := range rand.Perm(len(list)) {
		to = append(to, record(header, list[i]))
	}
	return to
}

func record(h dns.RR_Header, ip netip.Addr) dns.RR {
	if h.Rrtype == dns.TypeA {
		return &dns.A{Hdr: h, A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: ip.AsSlice()}
}
