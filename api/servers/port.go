package servers

// Port holds the servers of one port of a workload, in order of precedence.
type Port struct {
	first Use
	taken map[string]struct{} // server names that have a chain; AnyName for connections with any or none
}

// AnyName stands for connections with any server name, or without TLS.
const AnyName = ""

// Fits reports whether a server with a use can share the port with the servers before it. If the first server takes
// plaintext, no other use can.
func (p *Port) Fits(u Use) bool {
	if p.first == Closed {
		p.first = u
	}
	return p.first.TLS() || u == p.first
}

// Claim returns the server names of a chain that no earlier chain has, and reports for how many of them one has.
// Plaintext has one chain for all names.
func (p *Port) Claim(u Use, names []string) (free []string, taken int) {
	if !u.TLS() {
		names = []string{AnyName}
	}
	for _, name := range names {
		if name == "*" {
			names = []string{AnyName}
			break
		}
	}
	for _, name := range names {
		if _, known := p.taken[name]; known {
			taken++
			continue
		}
		if p.taken == nil {
			p.taken = map[string]struct{}{}
		}
		p.taken[name] = struct{}{}
		free = append(free, name)
	}
	return free, taken
}
