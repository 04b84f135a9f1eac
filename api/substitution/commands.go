package substitution

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Place is the kind of a text with commands.
type Place int

// Values of Place.
const (
	Header   Place = iota // value of a header
	Log                   // format of an access log, with the extension that writes paths without queries
	Extended              // format with extensions of its own, whose commands are unknown here
)

// Fault returns why Envoy would refuse a text in which it replaces commands, and what to write instead. Both are empty
// where Envoy accepts the text.
func (p Place) Fault(text string) (why, fix string) {
	if broken := visit(text, func(c command) bool {
		why, fix = c.faultIn(p)
		return why == ""
	}); broken != "" {
		return broken, "write %% for a percent sign, or a command such as %REQ(x-name)%"
	}
	return why, fix
}

// visit calls do with each command of a text until it returns false. It returns why the text cannot be parsed, if so;
// then not all commands were visited.
// not all commands were visited.
func visit(text string, do func(command) bool) (why string) {
	for i := 0; i < len(text); {
		switch {
		case text[i] != '%':
			i++
		case strings.HasPrefix(text[i:], "%%"):
			i += 2
		default:
			c, ok := parseCommand(text[i:])
			if !ok {
				return fmt.Sprintf("the percent sign at character %d of %q begins no command", i+1, shortened(text))
			}
			c.start = i
			if !do(c) {
				return ""
			}
			i += c.size
		}
	}
	return ""
}

// Recent returns the first command of a text that an Envoy before 1.40 may not have, or "".
func Recent(text string) string {
	found := ""
	_ = visit(text, func(c command) bool {
		if c.recent() {
			found = c.name
		}
		return found == ""
	})
	return found
}

// Older returns a text for an Envoy before 1.40: it has "-" where such an Envoy may not have the command.
func Older(text string) string {
	var older strings.Builder
	end := 0
	_ = visit(text, func(c command) bool {
		if c.recent() {
			older.WriteString(text[end:c.start] + "-")
			end = c.start + c.size
		}
		return true
	})
	return older.String() + text[end:]
}

// recent reports whether an Envoy before 1.40 may not have the command, or a command within it.
func (c command) recent() bool {
	if c.name == "COALESCE" {
		list, _, _ := operators(c.argument) // Fault reports the part that cannot be parsed
		return slices.ContainsFunc(list, func(c command) bool { return slices.Contains(recentCommands, c.name) })
	}
	return slices.Contains(recentCommands, c.name)
}

// recentCommands are the commands of Envoy 1.40 that Envoy 1.37 does not have.
var recentCommands = strings.Fields(`
	DOWNSTREAM_CX_RTT DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256
	DOWNSTREAM_PEER_ISSUER_SERIAL DOWNSTREAM_TLS_GROUP LISTENER_NAME ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID
	UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT
	UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_SERVER_NAME
	UPSTREAM_TLS_GROUP QUERY_PARAMS
`)

// shortened returns the beginning of a long text for messages, because a header may have a megabyte.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// command is one %NAME(argument):length%.
type command struct {
	name, argument string
	length         bool
	limit          int // the length; 0 if there is none
	start, size    int // position and length in the text, in bytes
}

// parseCommand parses the command at the beginning of s. The argument ends at the first parenthesis behind which the
// command can end.
func parseCommand(s string) (command, bool) {
	rest := strings.TrimLeft(s[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
	c := command{name: s[1 : len(s)-len(rest)]}
	if c.name == "" {
		return c, false
	}
	if c.end(rest) {
		c.size = len(s) - len(rest) + c.size
		return c, true
	}
	if !strings.HasPrefix(rest, "(") {
		return c, false
	}
	for i := 1; i < len(rest); i++ {
		if rest[i] == ')' && c.end(rest[i+1:]) {
			c.argument = rest[1:i]
			c.size += len(s) - len(rest) + i + 1
			return c, true
		}
	}
	return c, false
}

// end parses the end of a command: an optional length and a percent sign.
func (c *command) end(s string) bool {
	if digits, ok := strings.CutPrefix(s, ":"); ok {
		after := strings.TrimLeft(digits, "0123456789")
		n := digits[:len(digits)-len(after)]
		limit, err := strconv.ParseUint(n, 10, 64)
		if err != nil || !strings.HasPrefix(after, "%") {
			return false
		}
		c.length, c.limit, c.size = true, int(min(limit, math.MaxInt32)), len(n)+2
		return true
	}
	c.length, c.limit, c.size = false, 0, 1
	return strings.HasPrefix(s, "%")
}

// faultIn returns why Envoy would refuse the command in a Place, and what to write instead.
func (c command) faultIn(p Place) (why, fix string) {
	switch {
	case p == Header:
		return c.fault()
	case p == Extended && (c.name == "CEL" || !slices.Contains(commandNames(), c.name)):
		return "", ""
	case c.name == "PER_REQUEST_STATE":
		return "command PER_REQUEST_STATE stands in headers alone", "use %FILTER_STATE(key)%"
	case c.name == "CEL" && !compiles(c.argument):
		return "whether an Envoy compiles the expression of CEL is not known here", "write attributes and operators, such as %CEL(request.path)%"
	case c.name == "CEL":
		return "", ""
	case c.name == "REQ_WITHOUT_QUERY":
		c.name = "REQ"
		if c.argument == "" {
			return "", ""
		}
	case c.name == "COALESCE":
		return coalesceFault(c.argument, p)
	}
	return c.fault()
}

// fault returns why Envoy would refuse the command in a header, and what to write instead.
func (c command) fault() (why, fix string) {
	needs, shortens, known := commandForm(c.name)
	switch {
	case c.name == "CEL":
		return "CEL is not supported in headers", "use another command, such as %REQ(x-name)%"
	case !known:
		fix = diag.UnknownName(c.name, commandNames())
		if fix == "remove it" {
			fix = "write %% for a percent sign"
		}
		return fmt.Sprintf("unknown command %%%s%%", shortened(c.name)), fix
	case needs == argumentNone && c.argument != "":
		return fmt.Sprintf("command %s takes no argument", c.name), "write %" + c.name + "%"
	case needs == argumentRequired && c.argument == "":
		return fmt.Sprintf("command %s needs an argument", c.name), "write %" + c.name + "(...)%"
	case c.length && !shortens:
		return fmt.Sprintf("command %s takes no length", c.name), "remove the colon and the number"
	}
	return c.argumentFault()
}

func (c command) argumentFault() (why, fix string) {
	parts := strings.Split(c.argument, ":")
	word := func(i int, words ...string) {
		if why == "" && i < len(parts) && !slices.Contains(words, parts[i]) && (parts[i] != "" || c.name == "METADATA") {
			why, fix = fmt.Sprintf("%q is no argument of command %s", shortened(parts[i]), c.name), diag.UnknownName(parts[i], words)
		}
	}
	switch c.name {
	case "REQ", "RESP", "TRAILER", "REQUEST_HEADER", "RESPONSE_HEADER", "RESPONSE_TRAILER", "STREAM_INFO_REQ":
		headers := strings.Split(c.argument, "?")
		if len(headers) > 2 {
			return fmt.Sprintf("command %s takes one header and one alternative", c.name), "remove the others"
		}
		for _, name := range headers {
			if name != "" && !names.HeaderName(name) {
				return fmt.Sprintf("%q is not the name of a header", shortened(name)), "use letters, digits and dashes"
			}
		}
	case "START_TIME", "START_TIME_LOCAL", "EMIT_TIME", "EMIT_TIME_LOCAL", "DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_CERT_V_END",
		"UPSTREAM_PEER_CERT_V_START", "UPSTREAM_PEER_CERT_V_END":
		for _, format := range strings.Split(c.argument, "%")[1:] {
			format = strings.TrimLeft(strings.TrimLeft(format, "-_0^#"), "123456789")
			if strings.HasPrefix(format, "n") || strings.HasPrefix(format, "En") || strings.HasPrefix(format, "On") {
				return "the time format writes a new line", "remove %n"
			}
		}
	case "FILTER_STATE", "UPSTREAM_FILTER_STATE":
		switch {
		case parts[0] == "":
			return fmt.Sprintf("command %s needs a key", c.name), "write %" + c.name + "(key)%"
		case len(parts) > 1 && c.argument != parts[0]+":" && !slices.Contains([]string{"PLAIN", "TYPED", "FIELD"}, parts[1]):
			return fmt.Sprintf("%q is no way to write filter state", shortened(parts[1])),
				diag.UnknownName(parts[1], []string{"PLAIN", "TYPED", "FIELD"})
		case len(parts) > 1 && (parts[1] == "FIELD") != (len(parts) > 2):
			return "a field is named behind FIELD, and only there", "write %" + c.name + "(key:FIELD:name)%"
		}
	case "COMMON_DURATION":
		if len(parts) < 2 {
			return "a duration has two ends", "write %COMMON_DURATION(start:end:ms)%"
		}
		word(2, "ms", "us", "ns")
	case "METADATA":
		word(0, "DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "LISTENER_FILTER_CHAIN", "VIRTUAL_HOST")
	case "PATH":
		word(0, "WQ", "NQ")
		word(1, "ORIG", "PATH", "ORIG_OR_PATH")
	case "QUERY_PARAMS":
		parts = []string{c.argument}
		word(0, "ORIG", "DECODED")
	case "PER_REQUEST_STATE":
		if len(parts) > 1 {
			return "the name of a state has no colon", "use %FILTER_STATE(key)%"
		}
	case "COALESCE":
		return coalesceFault(c.argument, Header)
	}
	return why, fix
}

// coalesceFault returns why Envoy would refuse the argument of COALESCE, and what to write instead.
func coalesceFault(argument string, p Place) (why, fix string) {
	list, why, fix := operators(argument)
	if why != "" {
		return why, fix
	}
	for _, c := range list {
		if why, fix = c.faultIn(p); why != "" {
			return why, fix
		}
	}
	return "", ""
}

// operators returns the commands in the argument of COALESCE, a JSON list whose first non-empty value is used. If a
// command cannot be parsed, it returns the commands before it, the reason, and what to write instead.
func operators(argument string) (commands []command, why, fix string) {
	const form = `write {"operators": ["NAME", {"command": "REQ", "param": "x-name"}]}`
	var list struct {
		Operators []json.RawMessage `json:"operators"`
	}
	if err := json.Unmarshal([]byte(argument), &list); err != nil || len(list.Operators) == 0 {
		return nil, "COALESCE needs a JSON object with operators", form
	}
	for _, raw := range list.Operators {
		var op struct {
			Command   string  `json:"command"`
			Param     string  `json:"param"`
			MaxLength *uint64 `json:"max_length"`
		}
		if json.Unmarshal(raw, &op.Command) != nil && json.Unmarshal(raw, &op) != nil {
			return commands, "an operator of COALESCE is a name, or an object with a command", form
		}
		if op.Command == "COALESCE" {
			return commands, "COALESCE cannot hold another", "list all commands in one"
		}
		commands = append(commands, command{name: op.Command, argument: op.Param, length: op.MaxLength != nil})
	}
	return commands, "", ""
}

// argument says whether a command takes an argument.
type argument int

const (
	argumentNone argument = iota
	argumentOptional
	argumentRequired
)

// commandForm reports whether a command exists in headers, whether it takes an argument, and whether it takes a length.
func commandForm(name string) (needs argument, shortens, known bool) {
	switch name {
	case "DYNAMIC_METADATA", "ENVIRONMENT", "FILTER_STATE", "METADATA", "QUERY_PARAM",
		"REQ", "REQUEST_HEADER", "RESP", "RESPONSE_HEADER", "RESPONSE_TRAILER",
		"STREAM_INFO_REQ", "TRAILER", "UPSTREAM_FILTER_STATE", "COALESCE":
		return argumentRequired, true, true
	case "CLUSTER_METADATA", "UPSTREAM_METADATA", "COMMON_DURATION", "PER_REQUEST_STATE":
		return argumentRequired, false, true
	case "PATH", "QUERY_PARAMS":
		return argumentOptional, true, true
	case "RESPONSE_CODE_DETAILS", "START_TIME", "START_TIME_LOCAL", "EMIT_TIME",
		"EMIT_TIME_LOCAL", "DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_CERT_V_END",
		"UPSTREAM_PEER_CERT_V_START", "UPSTREAM_PEER_CERT_V_END":
		return argumentOptional, false, true
	}
	if slices.Contains(commandNames(), name) {
		if strings.HasSuffix(name, "_ADDRESS_WITHOUT_PORT") {
			return argumentOptional, false, true
		}
		return argumentNone, false, true
	}
	return argumentNone, false, false
}

// commandNames returns the commands of Envoy's substitution formatter. CEL is not included, because it is unknown here
// whether its expression compiles.
func commandNames() []string {
	return append(strings.Fields(plainCommands),
		"CLUSTER_METADATA", "COALESCE", "COMMON_DURATION", "DYNAMIC_METADATA", "EMIT_TIME", "EMIT_TIME_LOCAL",
		"ENVIRONMENT", "FILTER_STATE", "METADATA", "PATH", "PER_REQUEST_STATE", "QUERY_PARAM", "QUERY_PARAMS", "REQ",
		"REQUEST_HEADER", "RESP", "RESPONSE_CODE_DETAILS", "RESPONSE_HEADER", "RESPONSE_TRAILER", "START_TIME",
		"START_TIME_LOCAL", "STREAM_INFO_REQ", "TRAILER", "UPSTREAM_FILTER_STATE", "UPSTREAM_METADATA",
		"DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_CERT_V_END", "UPSTREAM_PEER_CERT_V_START",
		"UPSTREAM_PEER_CERT_V_END")
}

// plainCommands are the commands without an argument and a length, except that addresses without a port may have a
// prefix length.
const plainCommands = `
	ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS
	CUSTOM_FLAGS DOWNSTREAM_CX_RTT DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
	DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS
	DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_LOCAL_PORT
	DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT
	DOWNSTREAM_HANDSHAKE_DURATION DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS
	DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_CLOSE_REASON
	DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN
	DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT
	DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS
	DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256
	DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER_SERIAL
	DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN
	DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER
	DOWNSTREAM_TLS_GROUP DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON
	DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS GRPC_STATUS_NUMBER
	HOSTNAME LISTENER_NAME LOCAL_REPLY_BODY PACKETS_RETRANSMITTED PROTOCOL REQUESTED_SERVER_NAME REQUEST_DURATION
	REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG
	RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME
	ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID STREAM_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID
	UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_IDS_ATTEMPTED
	UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
	UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED
	UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT
	UPSTREAM_HOST_NAME UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT
	UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
	UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN
	UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT
	UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID
	UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_SERVER_NAME
	UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON
	UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME
`
