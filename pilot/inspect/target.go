package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// errNoSender is returned if no workload has the name of the source.
var errNoSender = errors.New("there is no such Pod, WorkloadEntry with a proxy, WorkloadGroup or connected proxy")

// Query describes a request to trace.
type Query struct {
	Source  string // proxy that sends the request: NAME.NAMESPACE
	Host    string
	Port    uint32
	Named   string // name of the port in the Service, as an alternative to Port
	Method  string
	Path    string
	Headers map[string]string
	HTTP    bool // whether the connection certainly carries HTTP, or TLS with HTTP in it
	TLS     bool // whether the application speaks TLS itself
	HTTP3   bool // whether the application calls by HTTP/3, which includes TLS
	// Certificate says that the client has a certificate that the proxy trusts.
	Certificate bool
	// FromAddress is the address of the client that calls a gateway, or of the source itself. It is optional.
	FromAddress string
	Claims      map[string]any // of a token, wherever policies look for one; nil if the only tokens are in Headers
	// TokenHeader is the JOSE header of the token with these claims, or nil if it is not known.
	TokenHeader map[string]any
	Now         time.Time // time at which tokens are checked for expiry; zero if none expires
	Log         string    // line of an access log, from which Source, Host, Port and the rest are read where they are empty
	opaque      bool      // whether the connection of the line carries another protocol than HTTP
	Sent        bool      // on a server: whether to use what proxies were sent, instead of what they would be sent now

	logged  bool   // whether a line of an access log shows that the connection came to a proxy
	address string // address that DNS gives for Host; empty for the one that the configuration has
}

// Values returns the query of the page /debug/why that asks a server the same.
func (q Query) Values() url.Values {
	v := url.Values{"source": {q.Source}, "host": {q.Host}, "port": {strconv.Itoa(int(q.Port))}, "method": {q.Method}, "path": {q.Path}}
	if q.Named != "" {
		v.Set("port", q.Named)
	}
	for name, value := range q.Headers {
		v.Add("header", name+"="+value)
	}
	for name, set := range map[string]bool{"http": q.HTTP, "tls": q.TLS, "http3": q.HTTP3, "certificate": q.Certificate, "sent": q.Sent} {
		if set {
			v.Set(name, "true")
		}
	}
	if q.Log != "" {
		v.Set("log", q.Log)
	}
	if q.FromAddress != "" {
		v.Set("fromAddress", q.FromAddress)
	}
	for name, value := range map[string]map[string]any{"claims": q.Claims, "tokenHeader": q.TokenHeader} {
		if value != nil {
			text, _ := json.Marshal(value) // values decoded from JSON can always be encoded
			v.Set(name, string(text))
		}
	}
	return v
}

// AddHeader adds a header. It joins headers of one name as Envoy does.
func (q *Query) AddHeader(name, value string) {
	name = strings.ToLower(name)
	between := ","
	if name == "cookie" {
		between = "; "
	}
	if had, ok := q.Headers[name]; ok && name != "host" {
		value = had + between + value
	}
	q.Headers[name] = value
}

// request returns the request at the first proxy, as far as the query alone says it.
func (q Query) request() trace.Request {
	authority := q.Host
	if strings.Contains(authority, ":") {
		authority = "[" + authority + "]"
	}
	if q.TLS && q.Port != 443 || !q.TLS && q.Port != 80 {
		authority += ":" + strconv.Itoa(int(q.Port))
	}
	headers := map[string]string{}
	for k, v := range q.Headers {
		if k = strings.ToLower(k); k == "host" {
			authority = v
			continue
		}
		headers[k] = v
	}
	return trace.Request{
		Authority: authority, Host: q.Host, Port: q.Port, Method: cmp.Or(q.Method, "GET"), Path: cmp.Or(q.Path, "/"), Headers: headers,
		Opaque: q.opaque, Taken: q.logged, TLS: q.TLS, HTTP3: q.HTTP3, Certificate: q.Certificate, Claims: q.Claims, TokenHeader: q.TokenHeader,
		Now: q.Now,
	}
}

// method returns the method of the request, or "" if there is no request.
func (q *Query) method(byDefault string) string {
	if q.opaque {
		return ""
	}
	return cmp.Or(q.Method, byDefault)
}

// ValidPath reports whether the path is a path, the asterisk of OPTIONS, or absent.
func (q *Query) ValidPath() bool { return q.Path == "" || q.Path[0] == '/' || q.Path == "*" }

// ValidFromAddress reports whether FromAddress is an IP address, or absent.
func (q *Query) ValidFromAddress() bool {
	_, err := netip.ParseAddr(q.FromAddress)
	return q.FromAddress == "" || err == nil
}

// ParseQuery parses the result of Values.
func ParseQuery(v url.Values) (Query, error) {
	q := Query{Source: v.Get("source"), Host: v.Get("host"), Method: v.Get("method"), Path: v.Get("path"),
		HTTP: v.Get("http") == "true", TLS: v.Get("tls") == "true",
		HTTP3: v.Get("http3") == "true", Certificate: v.Get("certificate") == "true", Log: v.Get("log"), Sent: v.Get("sent") == "true",
		FromAddress: v.Get("fromAddress"),
		Headers:     map[string]string{}}
	port, err := strconv.ParseUint(cmp.Or(v.Get("port"), "0"), 10, 16)
	if errors.Is(err, strconv.ErrSyntax) {
		q.Named, err = v.Get("port"), nil
	}
	if err != nil || q.Log == "" && (q.Source == "" || q.Host == "") {
		return q, errors.New("write ?source=NAME.NAMESPACE&host=HOST&port=PORT, with &path=, &method=, &header=NAME=VALUE, &tls=true, " +
			"&http3=true, &certificate=true, &sent=true, &fromAddress=ADDRESS, &claims=JSON, or ?log=LINE")
	}
	q.Port = uint32(port)
	for _, h := range v["header"] {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return q, fmt.Errorf("header=%s: write NAME=VALUE", h)
		}
		q.AddHeader(name, value)
	}
	if !q.ValidPath() {
		return q, fmt.Errorf("path=%s: a path begins with /", q.Path)
	}
	if !q.ValidFromAddress() {
		return q, fmt.Errorf("fromAddress=%s: write an IP address", q.FromAddress)
	}
	for name, to := range map[string]*map[string]any{"claims": &q.Claims, "tokenHeader": &q.TokenHeader} {
		if text := v.Get(name); text != "" {
			if err := json.Unmarshal([]byte(text), to); err != nil {
				return q, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return q, nil
}

// portOf returns the port of the service that a host names for a workload, if the query has no number: the port of that
// name, or the only one. If there are several, it returns an error that names them.
func (i *Inspection) portOf(q Query, from *sender) (uint32, error) {
	s := i.serviceOf(q.Host, from)
	if s == nil {
		s, _ = i.podOf(q.Host, from)
	}
	switch {
	case s == nil:
		return 0, fmt.Errorf("%s: %w%s", q.Host, errNoHost, i.nearHosts(q.Host, from.Namespace))
	case q.Named != "":
		for _, p := range s.Ports {
			if strings.EqualFold(p.Name, q.Named) {
				return p.Number, nil
			}
		}
		return 0, fmt.Errorf("%s:%s: %s has no port of that name: its ports are %s%s", q.Host, q.Named, s.Host, portsOf(s), nearPort(s, q.Named))
	case len(s.Ports) == 1:
		return s.Ports[0].Number, nil
	}
	return 0, fmt.Errorf("%s: write HOST:PORT: the ports of %s are %s", q.Host, s.Host, portsOf(s))
}

// errNoHost says how a target is written.
var errNoHost = errors.New("write HOST:PORT, for example reviews:9080")

// ParseTarget parses HOST:PORT or a URL. The port is 0 if the text has none: see portOf.
func ParseTarget(text string) (q Query, err error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		rest, scheme = text, ""
	}
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		rest, q.Path = rest[:at], "/"+strings.TrimPrefix(rest[at:], "/")
	}
	q.TLS, q.HTTP = scheme == "https" || scheme == "tls", scheme == "http" || scheme == "https"
	if scheme != "" && scheme != "http" && !q.TLS {
		return q, fmt.Errorf("%s: write http:// or https://, or HOST:PORT", text)
	}
	host, port := strings.TrimSuffix(rest, ":"), map[string]string{"http": "80", "https": "443"}[scheme]
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, ']') {
		host, port = rest[:at], rest[at+1:]
	}
	if port == "" && host != "" && !isURL { // the service's only port
		port = "0"
	} else if port == "0" {
		return q, errNoHost
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case errors.Is(err, strconv.ErrSyntax) && host != "" && len(validation.IsValidPortName(strings.ToLower(port))) == 0:
		q.Named = port
	case err != nil || host == "":
		return q, errNoHost
	}
	q.Host, q.Port = strings.Trim(host, "[]"), uint32(n)
	return q, nil
}
