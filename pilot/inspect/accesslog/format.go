package accesslog

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// Format is the form of the lines of an access log: a text, or the fields of a JSON object.
type Format struct {
	Name   string // where the format stands, for people
	Text   string
	Labels *structpb.Struct // nil for a text
}

// Formats of Istio before 1.8, and of Envoy without a format. Istio's own began as Envoy's, with addresses behind it.
const (
	oldText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`"%DYNAMIC_METADATA(istio.mixer:status)%" "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
		`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
		`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
		`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`
	envoyText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
		`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	firstText  = envoyText + ` %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS%`
	serverText = firstText + ` %REQUESTED_SERVER_NAME%`
)

// Defaults returns the formats that need no configuration.
func Defaults() []Format {
	return []Format{
		{Name: "Istio's text format", Text: mesh.LogText},
		{Name: "Istio's fields in JSON", Labels: mesh.LogLabels()},
		{Name: "the text format of Istio before 1.8", Text: oldText},
		{Name: "Envoy's text format", Text: envoyText},
		{Name: "the text format of Istio 1.1", Text: serverText},
		{Name: "the text format of Istio 1.2", Text: strings.Replace(serverText, "%RESPONSE_FLAGS%",
			`%RESPONSE_FLAGS% "%DYNAMIC_METADATA(istio.mixer:status)%"`, 1)},
		{Name: "the text format of Istio 1.0", Text: firstText},
	}
}

// FormatsOf returns the formats of a mesh, in front of the ones that need no configuration.
func FormatsOf(m *meshv1alpha1.MeshConfig) []Format {
	var list []Format
	add := func(name, text string, labels *structpb.Struct) {
		if text != "" || len(labels.GetFields()) > 0 {
			list = append(list, Format{name, text, labels})
		}
	}
	if text := m.GetAccessLogFormat(); m.GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		labels := &structpb.Struct{}
		if labels.UnmarshalJSON([]byte(text)) == nil {
			add("accessLogFormat of the mesh", "", labels)
		}
	} else {
		add("accessLogFormat of the mesh", text, nil)
	}
	for _, p := range m.GetExtensionProviders() {
		name := "the format of the provider " + p.GetName()
		switch c := p.GetProvider().(type) {
		case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
			add(name, c.EnvoyFileAccessLog.GetLogFormat().GetText(), c.EnvoyFileAccessLog.GetLogFormat().GetLabels())
		case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
			add(name, c.EnvoyOtelAls.GetLogFormat().GetText(), nil)
		}
	}
	return append(list, Defaults()...)
}

// maxParts bounds the literals and commands of a format, because the time to match a line grows with the square of
// their number. A format with more of them matches nothing.
const maxParts = 500

// match reads a text by a format with commands. It reports whether the text has the format, and how many values it has.
func match(e *Entry, format, text string) (values int, ok bool) {
	parts, ok := substitution.Parts(strings.TrimRight(format, "\r\n"))
	isCommand := func(p substitution.Part) bool { return p.Command != "" }
	if !ok || len(parts) > maxParts || !utf8.ValidString(format) || !slices.ContainsFunc(parts, isCommand) {
		return 0, false
	}
	found := pattern(parts).FindStringSubmatch(text)
	if found == nil {
		return 0, false
	}
	at := 0
	for _, p := range parts {
		if p.Command == "" {
			continue
		}
		at++
		if found[at] != "-" && found[at] != "" {
			values++
		}
		if !e.set(p, found[at]) {
			return 0, false
		}
	}
	return values, true
}

// pattern returns the regular expression of the texts that a format writes, with a group for each command.
func pattern(parts []substitution.Part) *regexp.Regexp {
	var out strings.Builder
	out.WriteString(`\A`)
	for _, p := range parts {
		switch p.Command {
		case "":
			out.WriteString(regexp.QuoteMeta(p.Literal))
		case "RESPONSE_CODE":
			out.WriteString(`([0-9]{0,3}|-)`)
		case "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG":
			out.WriteString(`([A-Za-z0-9_,]*|-)`)
		default:
			out.WriteString(`(.*?)`)
		}
	}
	return regexp.MustCompile(out.String() + `\z`)
}

// matchLabels reads a JSON object by the fields of a format. It returns the number of fields that it has.
func matchLabels(e *Entry, labels *structpb.Struct, object map[string]any) (fields int) {
	for _, key := range slices.Sorted(maps.Keys(labels.GetFields())) {
		value, there := object[key]
		if !there {
			continue
		}
		switch label := labels.GetFields()[key].GetKind().(type) {
		case *structpb.Value_StructValue:
			if nested, ok := value.(map[string]any); ok {
				fields += matchLabels(e, label.StructValue, nested)
			}
		case *structpb.Value_StringValue:
			if text, ok := scalar(value); ok {
				if _, ok := match(e, label.StringValue, text); ok {
					fields++
				}
			}
		}
	}
	return fields
}

// matchNames reads a JSON object whose keys are the names of commands in lower case, whatever its format is. It returns
// the number of such keys.
func matchNames(e *Entry, object map[string]any) (fields int) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name := strings.ToUpper(key)
		text, ok := scalar(object[key])
		if !ok || !slices.Contains([]string{"RESPONSE_CODE", "RESPONSE_FLAGS", "RESPONSE_CODE_DETAILS", "UPSTREAM_CLUSTER", "UPSTREAM_HOST",
			"UPSTREAM_TRANSPORT_FAILURE_REASON", "DOWNSTREAM_TRANSPORT_FAILURE_REASON", "CONNECTION_TERMINATION_DETAILS",
			local, remote, direct, "REQUESTED_SERVER_NAME", "ROUTE_NAME", "START_TIME", "PROTOCOL"}, name) {
			continue
		}
		if e.set(substitution.Part{Command: name}, text) {
			fields++
		}
	}
	return fields
}
