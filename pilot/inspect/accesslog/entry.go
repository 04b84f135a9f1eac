package accesslog

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// Kind says what a text is.
type Kind string

// Values of Kind.
const (
	Line     Kind = "line"     // a line of an access log
	Response Kind = "response" // the body of a response that Envoy gives itself
	Flags    Kind = "flags"    // response flags, a status or details alone
)

// Entry is what a text says about a request. A field is empty if the text does not have it.
type Entry struct {
	Kind   Kind   `json:"kind"`
	Format string `json:"format"` // the format that the text has, for people

	Time      time.Time         `json:"time,omitzero"`
	Method    string            `json:"method,omitempty"`
	Path      string            `json:"path,omitempty"` // as the client sent it, with its query
	Protocol  string            `json:"protocol,omitempty"`
	Authority string            `json:"authority,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"` // further headers of the request

	Code        int      `json:"code"` // 0 for connections, and for requests without a response
	HasCode     bool     `json:"hasCode,omitempty"`
	Flags       []string `json:"flags,omitempty"` // short names
	Details     string   `json:"details,omitempty"`
	Termination string   `json:"termination,omitempty"` // why the proxy closed the connection
	Transport   string   `json:"transport,omitempty"`   // why TLS or the connection to the upstream host failed
	Refused     string   `json:"refused,omitempty"`     // why TLS of the client failed

	UpstreamCluster  string `json:"upstreamCluster,omitempty"`
	UpstreamHost     string `json:"upstreamHost,omitempty"` // ADDRESS:PORT
	DownstreamLocal  string `json:"downstreamLocal,omitempty"`
	DownstreamRemote string `json:"downstreamRemote,omitempty"`
	DirectRemote     string `json:"directRemote,omitempty"` // the peer of the connection, whatever X-Forwarded-For says
	ServerName       string `json:"serverName,omitempty"`   // of the client's TLS
	Route            string `json:"route,omitempty"`
	Peer             string `json:"peer,omitempty"` // identity in the client's certificate

	Pod       string `json:"pod,omitempty"` // Pod whose log the line is of
	Namespace string `json:"namespace,omitempty"`

	Shortened []string `json:"shortened,omitempty"` // fields of which the format writes the beginning alone
}

// IsConnection reports whether the text is a line about a connection that is no HTTP.
func (e *Entry) IsConnection() bool {
	return e.Kind == Line && e.Code == 0 && e.Method == "" && e.Protocol == "" && e.Path == ""
}

// Commands of formats that also exist with _WITHOUT_PORT.
const (
	local  = "DOWNSTREAM_LOCAL_ADDRESS"
	remote = "DOWNSTREAM_REMOTE_ADDRESS"
	direct = "DOWNSTREAM_DIRECT_REMOTE_ADDRESS"
)

// set takes the value that a command has written. It reports whether the value can be one of the command.
func (e *Entry) set(p substitution.Part, value string) bool {
	if value == "-" || value == "" {
		return true
	}
	var to *string
	switch p.Command {
	case "START_TIME", "START_TIME_LOCAL":
		e.Time = parseTime(value)
	case "RESPONSE_CODE":
		code, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return false
		}
		e.Code, e.HasCode = int(code), true
	case "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG":
		var ok bool
		e.Flags, ok = parseFlags(value)
		return ok
	case "REQ", "REQUEST_HEADER", "REQ_WITHOUT_QUERY":
		first, second, _ := strings.Cut(p.Argument, "?")
		to = e.header(strings.ToLower(first), strings.ToLower(second))
	case "COALESCE":
		return true // which of its commands has the value is not known
	case "PATH":
		to = &e.Path
	case "PROTOCOL":
		to = &e.Protocol
	case "RESPONSE_CODE_DETAILS":
		to = &e.Details
	case "CONNECTION_TERMINATION_DETAILS":
		to = &e.Termination
	case "UPSTREAM_TRANSPORT_FAILURE_REASON":
		to = &e.Transport
	case "DOWNSTREAM_TRANSPORT_FAILURE_REASON":
		to = &e.Refused
	case "UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW":
		to = &e.UpstreamCluster
	case "UPSTREAM_HOST", "UPSTREAM_REMOTE_ADDRESS":
		to = &e.UpstreamHost
	case local, local + "_WITHOUT_PORT":
		e.DownstreamLocal = withAddress(e.DownstreamLocal, value)
	case "DOWNSTREAM_LOCAL_PORT":
		e.DownstreamLocal = withPort(e.DownstreamLocal, value)
	case remote, remote + "_WITHOUT_PORT":
		to = &e.DownstreamRemote
	case direct, direct + "_WITHOUT_PORT":
		to = &e.DirectRemote
	case "REQUESTED_SERVER_NAME":
		to = &e.ServerName
	case "ROUTE_NAME":
		to = &e.Route
	case "DOWNSTREAM_PEER_URI_SAN":
		to = &e.Peer
	case "HOSTNAME":
		to = &e.Pod
	case "ENVIRONMENT":
		switch p.Argument {
		case "POD_NAME", "HOSTNAME":
			to = &e.Pod
		case "POD_NAMESPACE":
			to = &e.Namespace
		}
	}
	if to == nil {
		if header := e.otherHeader(p); header != "" {
			if e.Headers == nil {
				e.Headers = map[string]string{}
			}
			e.Headers[header] = value
			e.shortened(p, "the header "+header, value)
		}
		return true
	}
	*to = value
	e.shortened(p, p.Command, value)
	return true
}

// header returns the field for a header of the request or its alternative, or nil if it has no field of its own.
func (e *Entry) header(first, second string) *string {
	for _, name := range []string{first, second} {
		switch name {
		case ":method":
			return &e.Method
		case ":path":
			return &e.Path
		case ":authority", "host":
			return &e.Authority
		}
	}
	return nil
}

// otherHeader returns the name of a header of the request that has no field of its own, or "".
func (e *Entry) otherHeader(p substitution.Part) string {
	if p.Command != "REQ" && p.Command != "REQUEST_HEADER" || strings.ContainsAny(p.Argument, "?:") {
		return ""
	}
	return strings.ToLower(p.Argument)
}

// shortened records that a value may be the beginning of the whole.
func (e *Entry) shortened(p substitution.Part, what, value string) {
	if p.Length > 0 && len(value) >= p.Length && !slices.Contains(e.Shortened, what) {
		e.Shortened = append(e.Shortened, what)
	}
}

// withAddress returns an address with the port of what was known before, if the address has none.
func withAddress(known, value string) string {
	if port, ok := strings.CutPrefix(known, ":"); ok && !HostPort(value).IsValid() {
		return joined(value, port)
	}
	return value
}

func withPort(known, port string) string {
	if HostPort(known).IsValid() {
		return known
	}
	return joined(known, port)
}

func joined(address, port string) string {
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() {
		address = "[" + address + "]"
	}
	return address + ":" + port
}

// HostPort returns an address with its port. It is invalid for other texts, such as names of internal listeners.
func HostPort(text string) netip.AddrPort {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Host returns the address in a text, with or without a port. It is invalid for other texts.
func Host(text string) netip.Addr {
	if a := HostPort(text); a.IsValid() {
		return a.Addr()
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

// parseTime returns the time that START_TIME has written, or the zero time if its form is unknown.
func parseTime(text string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
		"2006/01/02T15:04:05Z07:00", "02/Jan/2006:15:04:05 -0700"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	seconds, err := strconv.ParseFloat(text, 64)
	const first, last = 1e9, 1e11 // seconds since 1970, from 2001
	switch {
	case err != nil || seconds < first:
		return time.Time{}
	case seconds < last:
		return time.Unix(0, int64(seconds*1e9)).UTC()
	case seconds < last*1e3:
		return time.UnixMilli(int64(seconds)).UTC()
	}
	return time.Time{}
}

// parseFlags returns the short names of response flags. It returns false if a text is no name of a flag.
func parseFlags(text string) ([]string, bool) {
	var list []string
	for name := range strings.SplitSeq(text, ",") {
		m, ok := FlagMeaning(name)
		if !ok && !isFlag(name) {
			return nil, false
		}
		if !ok {
			m.Name = name
		}
		list = append(list, m.Name)
	}
	return list, true
}

// isFlag reports whether a text has the form of a flag. Extensions of Envoy register flags of their own.
func isFlag(name string) bool {
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// scalar returns a value of JSON as Envoy would write it in text.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// Meanings returns what the flags, the details and the reasons of an entry mean, the most specific one first.
func (e *Entry) Meanings() []Meaning {
	var list []Meaning
	for _, m := range []Meaning{transportMeaning(e.Transport), refusedMeaning(e.Refused)} {
		if m.Name != "" {
			list = append(list, m)
		}
	}
	for _, text := range []string{e.Details, e.Termination} {
		if m, ok := DetailMeaning(text); ok {
			list = append(list, m)
		} else if text != "" {
			list = append(list, Meaning{Name: text, Says: "A filter or an extension of the proxy gave this detail.",
				Look: "Look at the EnvoyFilters and WasmPlugins of the workload."})
		}
	}
	for _, name := range e.Flags {
		m, ok := FlagMeaning(name)
		if !ok {
			m = Meaning{Name: name, Says: "An extension of the proxy has set this flag: Envoy's documentation does not have it.",
				Look: "Look at the EnvoyFilters and WasmPlugins of the workload."}
		}
		if e.IsConnection() {
			m.Says = ofConnection(m.Says)
		}
		list = append(list, m)
	}
	for _, name := range []string{e.UpstreamCluster, e.Route} {
		if m := destinationMeaning(name); m.Name != "" && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// Causes returns the causes that an entry names, the most specific one first.
func (e *Entry) Causes() []Cause {
	var list []Cause
	for _, m := range e.Meanings() {
		if m.Cause != Unknown && !slices.Contains(list, m.Cause) {
			list = append(list, m.Cause)
		}
	}
	return list
}

// Policy returns the rule of the AuthorizationPolicy that the details name, as ns[a]-policy[web]-rule[0], or none.
func (e *Entry) Policy() string {
	for _, text := range []string{e.Details, e.Termination} {
		if name := policyIn(text); name != "" {
			return name
		}
	}
	return ""
}

// Unasked reports whether the text says that a request was denied because no authorizer can be asked.
func (e *Entry) Unasked() bool { return strings.HasSuffix(e.Policy(), badCustom) }

// Failed reports whether the text says that the application did not answer.
func (e *Entry) Failed() bool {
	for _, c := range e.Causes() {
		if c != Application {
			return true
		}
	}
	return slices.ContainsFunc(e.Flags, func(f string) bool { return f != delayed }) || e.Code >= 400
}

// Answer describes the answer in a text, such as "503 UF,URX".
func (e *Entry) Answer() string {
	var parts []string
	if e.Code != 0 {
		parts = append(parts, fmt.Sprintf("status %d", e.Code))
	} else if e.HasCode && !e.IsConnection() {
		parts = append(parts, "no response")
	}
	if len(e.Flags) > 0 {
		parts = append(parts, "flags "+strings.Join(e.Flags, ","))
	}
	if e.Details != "" {
		parts = append(parts, e.Details)
	}
	if e.Termination != "" {
		parts = append(parts, e.Termination)
	}
	return strings.Join(parts, ", ")
}
