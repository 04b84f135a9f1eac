package openness

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// samples are values for requests, by kind. The first value of each kind belongs to a plain request.
type samples struct {
	identities, addresses, methods, paths, hosts, names []string
	ports                                               []uint32
	headers                                             [][2]string
	claims                                              []map[string]any
}

// sampled returns values that occur in the objects of a world, and some that do not.
func sampled(s Slot, w World) samples {
	all := samples{
		identities: []string{"spiffe://cluster.local/ns/" + s.Home() + "/sa/pay", "",
			"spiffe://cluster.local/ns/" + s.Neighbour() + "/sa/secret", "spiffe://cluster.local/ns/x/sa/y",
			"spiffe://td/ns/" + s.Home() + "/sa/pay"},
		addresses: []string{s.pod(12), "192.0.2.7", "192.0.2.200", "10.200.0.1", "2001:db8::1"},
		methods:   []string{"GET", "POST", "DELETE"},
		paths:     []string{"/", "/admin", "/admin/x", "/public/a"},
		headers:   [][2]string{{"x-user", "evil"}, {"x-user", "admin"}, {"x-user", ""}},
		claims: []map[string]any{nil, {"iss": "issuer.example.com", "sub": "subject"}, {"iss": "issuer.example.com", "sub": "*"},
			{"iss": "issuer.example.com"}, {"iss": "x", "sub": "y"}},
	}
	c := collector{&all, s}
	for _, o := range w.Objects {
		c.walk("", o.Object["spec"])
	}
	all.identities, all.addresses, all.methods, all.paths = unique(all.identities), unique(all.addresses), unique(all.methods),
		unique(all.paths)
	all.hosts, all.names = unique(all.hosts), unique(all.names)
	slices.Sort(all.ports)
	all.ports = slices.Compact(all.ports)
	return all
}

func unique(list []string) (out []string) {
	for _, x := range list {
		if !slices.Contains(out, x) && len(x) < 2000 {
			out = append(out, x)
		}
	}
	return out
}

type collector struct {
	*samples
	s Slot
}

func (c collector) walk(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if key, is := v["key"].(string); is {
			c.condition(key, v)
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if name == "headers" || name == "withoutHeaders" || name == "queryParams" {
				c.header(k, v[k])
			}
			if n, err := strconv.ParseUint(k, 10, 16); err == nil {
				c.ports = append(c.ports, uint32(n))
			}
			c.walk(k, v[k])
		}
		if n, is := v["name"].(string); is && v["value"] != nil { // a header of the Gateway API
			c.header(n, v["value"])
		}
	case []any:
		for _, x := range v {
			c.walk(name, x)
		}
	case string:
		for _, text := range variants(v) {
			c.text(strings.TrimPrefix(strings.ToLower(name), "not"), text)
		}
	case int64:
		if v > 0 && v < 65536 && (strings.Contains(strings.ToLower(name), "port") || name == "number") {
			c.ports = append(c.ports, uint32(v))
		}
	}
}

// variants returns texts that a pattern with stars may match.
func variants(s string) []string {
	plain := strings.NewReplacer("{**}", "a/b", "{*}", "abc", "**", "a/b", "*", "abc", ".*", "abc").Replace(s)
	list := []string{s, plain, strings.ReplaceAll(s, "*", ""), strings.TrimSpace(plain), strings.ToLower(plain), strings.TrimRight(plain,
		"./"), plain + "x", "x" + plain}
	return unique(list)
}

func (c collector) text(name, text string) {
	switch name {
	case "principals":
		c.identities = append(c.identities, "spiffe://"+strings.TrimPrefix(text, "spiffe://"))
	case "namespaces":
		c.identities = append(c.identities, "spiffe://cluster.local/ns/"+text+"/sa/x")
	case "serviceaccounts":
		ns, sa, ok := strings.Cut(text, "/")
		if !ok {
			ns, sa = c.s.Home(), text
		}
		c.identities = append(c.identities, "spiffe://cluster.local/ns/"+ns+"/sa/"+sa)
	case "requestprincipals":
		for i := range text {
			if text[i] == '/' {
				c.claims = append(c.claims, map[string]any{"iss": text[:i], "sub": text[i+1:]})
			}
		}
		c.claims = append(c.claims, map[string]any{"iss": text, "sub": "subject"}, map[string]any{"iss": text, "sub": ""})
	case "issuer":
		c.claims = append(c.claims, map[string]any{"iss": text, "sub": "subject", "aud": "aud.example.com"}, map[string]any{"iss": text,
			"sub": "subject", "aud": "other"})
	case "ipblocks", "remoteipblocks":
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			c.addresses = append(c.addresses, p.Addr().String(), p.Masked().Addr().Next().String())
		} else if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			c.addresses = append(c.addresses, a.String())
		}
	case "paths", "prefix", "exact", "regex", "value":
		if strings.HasPrefix(text, "/") {
			c.paths = append(c.paths, text)
		}
	case "methods", "method":
		c.methods = append(c.methods, text)
	case "ports":
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16); err == nil {
			c.ports = append(c.ports, uint32(n))
		}
	case "host", "hosts", "hostname", "hostnames", "snihosts", "sni":
		_, after, ok := strings.Cut(text, "/")
		if ok {
			text = after
		}
		c.hosts = append(c.hosts, text)
		c.names = append(c.names, text)
	}
}

func (c collector) header(name string, v any) {
	switch v := v.(type) {
	case string:
		for _, text := range variants(v) {
			c.headers = append(c.headers, [2]string{strings.ToLower(name), text})
		}
	case map[string]any:
		for _, x := range v {
			c.header(name, x)
		}
	}
}

// condition adds the values of a condition of an AuthorizationPolicy.
func (c collector) condition(key string, v map[string]any) {
	before, inside, _ := strings.Cut(strings.TrimSuffix(key, "]"), "[")
	for _, field := range []string{"values", "notValues"} {
		list, _ := v[field].([]any)
		for _, x := range list {
			x, _ := x.(string)
			for _, text := range variants(x) {
				switch before {
				case "request.headers":
					c.headers = append(c.headers, [2]string{strings.ToLower(inside), text})
				case "request.auth.claims":
					value := any(text)
					path := strings.Split(inside, "][")
					for _, k := range slices.Backward(path) {
						value = map[string]any{k: value}
					}
					claims := maps.Clone(value.(map[string]any))
					claims["iss"], claims["sub"] = "issuer.example.com", "subject"
					c.claims = append(c.claims, claims)
				case "request.auth.audiences":
					c.claims = append(c.claims, map[string]any{"iss": "issuer.example.com", "sub": "subject", "aud": text})
				case "request.auth.presenter":
					c.claims = append(c.claims, map[string]any{"iss": "issuer.example.com", "sub": "subject", "azp": text})
				case "source.principal":
					c.text("principals", text)
				case "source.namespace":
					c.text("namespaces", text)
				case "request.auth.principal":
					c.text("requestprincipals", text)
				case "source.ip", "remote.ip":
					c.text("ipblocks", text)
				case "destination.port":
					c.text("ports", text)
				case "connection.sni":
					c.text("sni", text)
				}
			}
		}
	}
}

// few returns at most n values, the first ones and then some of the others.
func few[T any](r *rand.Rand, list []T, n, first int) []T {
	if len(list) <= n {
		return list
	}
	out := slices.Clone(list)
	r.Shuffle(len(out)-first, func(i, j int) { out[first+i], out[first+j] = out[first+j], out[first+i] })
	return out[:n]
}

// inbound returns requests that reach the sidecar: a plain one for each port, variants that differ in one value, and
// random ones.
func (v samples) inbound(s Slot, r *rand.Rand, random int) (out []trace.Request) {
	host := "web." + s.Home() + ".svc.cluster.local"
	identities, addresses, paths := few(r, v.identities, 14, 5), few(r, v.addresses, 8, 3), few(r, v.paths, 14, 3)
	methods, hosts, headers, claims := few(r, v.methods, 6, 3), few(r, append([]string{host, "web", "a.example.com"}, v.hosts...), 8, 3),
		few(r, v.headers, 10, 3), few(r, v.claims, 12, 5)
	names := few(r, v.names, 5, 0)
	ports := []uint32{8080, 9000, 8443}
	for _, p := range few(r, v.ports, 4, 0) {
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	plain := func(port uint32) trace.Request {
		x := trace.Request{Inbound: true, Address: s.pod(11), Port: port, Host: host, Authority: host, Method: "GET", Path: "/",
			SourceAddress: addresses[0]}
		return by(x, identities[0])
	}
	for _, port := range ports {
		base := plain(port)
		add := func(change func(*trace.Request)) {
			x := base
			change(&x)
			out = append(out, x)
		}
		add(func(*trace.Request) {})
		for _, id := range identities {
			add(func(x *trace.Request) { *x = by(*x, id) })
		}
		for _, a := range addresses {
			add(func(x *trace.Request) { x.SourceAddress = a })
		}
		for _, n := range names {
			add(func(x *trace.Request) { x.SNI = n })
			add(func(x *trace.Request) { *x = by(*x, ""); x.TLS, x.SNI, x.ALPN = true, n, []string{"h2"} })
		}
		if port == 9000 {
			continue
		}
		for _, p := range paths {
			add(func(x *trace.Request) { x.Path = p })
			add(func(x *trace.Request) { *x = by(*x, ""); x.Path = p })
		}
		for _, m := range methods {
			add(func(x *trace.Request) { x.Method = m })
		}
		for _, h := range hosts {
			add(func(x *trace.Request) { x.Authority = h })
		}
		for _, h := range headers {
			add(func(x *trace.Request) { x.Headers = map[string]string{h[0]: h[1]} })
		}
		for _, c := range claims {
			add(func(x *trace.Request) { x.Claims = c })
		}
	}
	for range random {
		x := by(plain(ports[r.IntN(len(ports))]), identities[r.IntN(len(identities))])
		x.SourceAddress, x.Path, x.Method = addresses[r.IntN(len(addresses))], paths[r.IntN(len(paths))], methods[r.IntN(len(methods))]
		x.Authority, x.Claims = hosts[r.IntN(len(hosts))], claims[r.IntN(len(claims))]
		x.Headers = map[string]string{}
		for range r.IntN(3) {
			h := headers[r.IntN(len(headers))]
			x.Headers[h[0]] = h[1]
		}
		out = append(out, x)
	}
	return out
}

// by returns the request with mutual TLS of the mesh and an identity, or in plaintext if the identity is empty.
func by(x trace.Request, identity string) trace.Request {
	x.Identity, x.TLS, x.SNI, x.ALPN = identity, identity != "", "", nil
	if x.TLS {
		x.SNI, x.ALPN = "outbound_.80_._."+x.Host, []string{"istio-http/1.1", "istio"}
	}
	return x
}

// others are alternatives to the values of a plain request.
type others struct {
	paths, methods []string
	headers        [][2]string
}

// others returns some of the values, with at most so many paths.
func (v samples) others(r *rand.Rand, paths int) others {
	o := others{paths: few(r, v.paths, paths, 2)[1:]}
	o.headers, o.methods = few(r, v.headers, 4, 1), few(r, v.methods, 3, 1)[1:]
	return o
}

// of returns the requests that differ from a plain one in one value.
func (o others) of(plain trace.Request) (out []trace.Request) {
	add := func(change func(*trace.Request)) {
		x := plain
		change(&x)
		out = append(out, x)
	}
	for _, p := range o.paths {
		add(func(x *trace.Request) { x.Path = p })
	}
	for _, h := range o.headers {
		add(func(x *trace.Request) { x.Headers = map[string]string{h[0]: h[1]} })
	}
	for _, m := range o.methods {
		add(func(x *trace.Request) { x.Method = m })
	}
	return out
}

// outbound returns requests that the application beside the sidecar sends.
func (v samples) outbound(s Slot, r *rand.Rand) (out []trace.Request) {
	type place struct {
		host, address string
		ports         []uint32
	}
	places := []place{
		{"pay." + s.Home() + ".svc.cluster.local", s.service(12), []uint32{80, 443, 9000}},
		{"secret." + s.Neighbour() + ".svc.cluster.local", s.service(13), []uint32{80}},
		{"unknown.example.org", "203.0.113.9", []uint32{80, 443, 9000, 7777}},
	}
	ports := few(r, append([]uint32{80, 443}, v.ports...), 5, 2)
	for _, h := range few(r, v.hosts, 6, 0) {
		places = append(places, place{h, "203.0.113.10", ports})
	}
	others := v.others(r, 6)
	for _, p := range places {
		for _, port := range p.ports {
			base := trace.Request{Address: p.address, Port: port, Host: p.host, Authority: p.host, Method: "GET", Path: "/",
				SourceAddress: s.pod(11)}
			out = append(out, base)
			tls := base
			tls.TLS, tls.SNI, tls.ALPN = true, p.host, []string{"h2", "http/1.1"}
			out = append(out, tls)
			if port == 443 || port == 9000 {
				continue
			}
			out = append(out, others.of(base)...)
		}
	}
	return out
}

// gateway returns requests that come to the gateway from outside.
func (v samples) gateway(s Slot, r *rand.Rand) (out []trace.Request) {
	hosts := few(r, append([]string{"shop.example.com", "other.example.org"}, v.hosts...), 9, 2)
	others := v.others(r, 5)
	ports := []uint32{80, 443, 8080, 8443, 9000}
	for _, p := range few(r, v.ports, 4, 0) {
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	for _, port := range ports {
		for _, tls := range []bool{false, true} {
			for _, h := range hosts {
				x := trace.Request{Gateway: true, Address: s.pod(14), Port: port, Host: h, Authority: h, Method: "GET", Path: "/",
					SourceAddress: "192.0.2.7", TLS: tls}
				if tls {
					x.SNI, x.ALPN = h, []string{"h2", "http/1.1"}
				}
				out = append(out, x)
				if h != hosts[0] && r.IntN(3) > 0 {
					continue
				}
				out = append(out, others.of(x)...)
			}
		}
	}
	return out
}
