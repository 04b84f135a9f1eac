package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// ttl is the TTL of records from the table, in seconds.
const ttl = 30

// lookup is a NameTable that is indexed for queries. Names are in lower case and end with a dot. It is immutable.
type lookup struct {
	encoded   []byte // the NameTable, for Server.Table
	names     map[string]*addresses
	wildcards map[string]*addresses // wildcards, without "*."
	// search is the first search domain in the form ".ns.svc.cluster.local.", or empty.
	search string
}

// addresses are the addresses of one name.
type addresses struct{ v4, v6 []netip.Addr }

// newLookup returns the lookup for a proxy in a namespace. The search domain has no leading or trailing dots.
func newLookup(t *NameTable, namespace, search string) *lookup {
	l := &lookup{names: make(map[string]*addresses, len(t.Table)), wildcards: map[string]*addresses{}}
	if search = strings.Trim(search, "."); search != "" {
		l.search = "." + strings.ToLower(search) + "."
	}
	names := t.names()
	parsed := make([]*addresses, len(names))
	for i, name := range names {
		parsed[i] = parse(t.Table[name].IPs)
		l.names[absolute(name)] = parsed[i]
		if parent, ok := strings.CutPrefix(absolute(name), "*."); ok {
			l.wildcards[parent] = parsed[i]
		}
	}
	// A full name takes precedence over a short one.
	for i, name := range names {
		for _, short := range alternatives(name, t.Table[name], namespace) {
			if _, ok := l.names[absolute(short)]; !ok {
				l.names[absolute(short)] = parsed[i]
			}
		}
	}
	return l
}

// alternatives returns the other names of a service in a namespace's proxies: the names in AltHosts or, for a
// Kubernetes service, its name with parts of the domain and, in its own namespace, its name alone.
func alternatives(name string, i *NameInfo, namespace string) []string {
	if len(i.AltHosts) > 0 || i.Registry != "Kubernetes" || i.ShortName == "" || i.Namespace == "" {
		return i.AltHosts
	}
	full := i.ShortName + "." + i.Namespace
	list := []string{full}
	if strings.HasPrefix(name, full+".svc.") {
		list = append(list, full+".svc")
	}
	if i.Namespace == namespace {
		list = append(list, i.ShortName)
	}
	return list
}

// absolute returns a name in lower case with one dot at the end.
func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

func parse(ips []string) *addresses {
	a := &addresses{}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		switch ip = ip.Unmap(); {
		case err != nil: // the control plane has reported it
		case ip.Is4():
			a.v4 = append(a.v4, ip)
		default:
			a.v6 = append(a.v6, ip)
		}
	}
	return a
}

// answer returns the records for a question. ok is false if the table does not have the name, or the type of the
// question is not A or AAAA.
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
	shortName := name[:len(name)-len(l.search)+1]
	a := l.find(shortName)
	if a == nil {
		return nil, false
	}
	alias := &dns.CNAME{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: ttl}, Target: shortName}
	return a.records([]dns.RR{alias}, shortName, q.Qtype), true
}

// find returns the addresses of a name or of the longest matching wildcard. It returns nil if there is neither.
func (l *lookup) find(name string) *addresses {
	if a := l.names[name]; a != nil {
		return a
	}
	// Names of the mesh have no escaped dots in their labels.
	for len(l.wildcards) > 0 {
		_, parent, ok := strings.Cut(name, ".")
		if !ok || parent == "" {
			break
		}
		if a := l.wildcards[parent]; a != nil {
			return a
		}
		name = parent
	}
	return nil
}

// records appends the addresses of one family in random order.
func (a *addresses) records(records []dns.RR, name string, qtype uint16) []dns.RR {
	list := a.v4
	if qtype == dns.TypeAAAA {
		list = a.v6
	}
	header := dns.RR_Header{Name: name, Rrtype: qtype, Class: dns.ClassINET, Ttl: ttl}
	if len(list) == 1 {
		return append(records, record(header, list[0]))
	}
	for _, i := range rand.Perm(len(list)) {
		records = append(records, record(header, list[i]))
	}
	return records
}

func record(h dns.RR_Header, ip netip.Addr) dns.RR {
	if h.Rrtype == dns.TypeA {
		return &dns.A{Hdr: h, A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: ip.AsSlice()}
}
