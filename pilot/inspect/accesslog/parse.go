package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxLine bounds a line in bytes. Envoy's default limit of all headers of a request is 60 KiB.
const MaxLine = 64 << 10

// minFields is the least number of known fields that a JSON object of a log has.
const minFields = 2

// ErrUnknown says which texts are understood.
var ErrUnknown = errors.New("it is no line of an access log in a format of Istio, Envoy or the mesh (accessLogFormat and the " +
	"extensionProviders), no response that Envoy gives itself, such as \"no healthy upstream\", and no response flags, such as UF,URX")

// Parse reads a text by the first format that it has.
func Parse(text string, formats []Format) (*Entry, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil, errors.New("it is empty: write a line of an access log")
	case len(text) > MaxLine:
		return nil, fmt.Errorf("it has %d bytes, and a line has at most %d: write one line", len(text), MaxLine)
	case !utf8.ValidString(text):
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	text, pod := withoutPrefix(text)
	e, err := parse(text, formats)
	if e != nil && e.Pod == "" {
		e.Pod = pod
	}
	return e, err
}

// withoutPrefix removes what kubectl logs writes in front of a line: the Pod with --prefix, and the time with
// --timestamps.
func withoutPrefix(text string) (rest, pod string) {
	if name, ok := strings.CutPrefix(text, "[pod/"); ok {
		if name, after, ok := strings.Cut(name, "] "); ok {
			pod, _, _ = strings.Cut(name, "/")
			text = strings.TrimSpace(after)
		}
	}
	if first, after, ok := strings.Cut(text, " "); ok {
		if _, err := time.Parse(time.RFC3339Nano, first); err == nil && (after[0] == '[' || after[0] == '{') {
			text = after
		}
	}
	return text, pod
}

// parse reads a text without the prefix of a collector.
func parse(text string, formats []Format) (*Entry, error) {
	if strings.HasPrefix(text, "{") {
		return parseJSON(text, formats, true)
	}
	for _, f := range formats {
		e := &Entry{Kind: Line, Format: f.Name}
		if values, ok := match(e, f.Text, text); ok && values > 0 && e.says() {
			return e, nil
		}
	}
	if e := parseFlagsAlone(text); e != nil {
		return e, nil
	}
	if n := strings.Count(text, "\n"); n > 0 && text[0] == '[' {
		return nil, fmt.Errorf("it has %d lines: write one line of an access log", n+1)
	}
	if e := parseResponse(text); e != nil {
		return e, nil
	}
	return nil, ErrUnknown
}

// says reports whether an entry has what makes it a line of an access log.
func (e *Entry) says() bool {
	return e.HasCode || len(e.Flags) > 0 || e.Details != "" || e.UpstreamCluster != "" || e.DownstreamLocal != "" || e.Method != ""
}

// parseJSON reads a JSON object by the format that has most of its fields. The object of a collector of logs may hold
// the line in one of its fields.
func parseJSON(text string, formats []Format, outer bool) (*Entry, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	object := map[string]any{}
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("it begins as a JSON object and is none: %w", err)
	}
	if d.More() {
		return nil, errors.New("there is something behind the JSON object: write one line of an access log")
	}
	var best *Entry
	most := 0
	for _, f := range formats {
		e := &Entry{Kind: Line, Format: f.Name}
		if n := matchLabels(e, f.Labels, object); n > most && e.says() {
			best, most = e, n
			others := maps.Clone(object) // keys that users add to a format have the names of commands
			maps.DeleteFunc(others, func(key string, _ any) bool { return f.Labels.GetFields()[key] != nil })
			matchNames(e, others)
		}
	}
	if e := (&Entry{Kind: Line, Format: "JSON with the names of Envoy's commands"}); most < minFields {
		if matchNames(e, object) > most && e.says() {
			best = e
		}
	}
	if best != nil {
		return best, nil
	}
	for _, key := range []string{"log", "message", "msg", "textPayload", "jsonPayload", "line"} {
		switch inner := object[key].(type) {
		case string:
			if outer && !strings.HasPrefix(strings.TrimSpace(inner), "{") {
				return Parse(inner, formats)
			} else if outer {
				return parseJSON(strings.TrimSpace(inner), formats, false)
			}
		case map[string]any:
			if text, err := json.Marshal(inner); err == nil && outer {
				return parseJSON(string(text), formats, false)
			}
		}
	}
	return nil, errors.New("it is a JSON object without the fields of an access log: they are Istio's, or the ones of accessLogFormat and " +
		"the extensionProviders of the mesh")
}

// parseFlagsAlone reads response flags, a status and details without the rest of a line. It returns nil for other
// texts.
func parseFlagsAlone(text string) *Entry {
	e := &Entry{Kind: Flags, Format: "response flags"}
	for word := range strings.FieldsSeq(text) {
		word = strings.Trim(word, `"'`)
		if code, err := strconv.ParseUint(word, 10, 16); err == nil && len(word) == 3 && code >= 100 && code < 600 && !e.HasCode {
			e.Code, e.HasCode = int(code), true
			continue
		}
		if e.Flags == nil && knownFlags(word) {
			e.Flags, _ = parseFlags(word)
			continue
		}
		if isPolicy(word) {
			word = policyDetails + "[" + word + "]"
		}
		if _, known := DetailMeaning(word); !known || e.Details != "" {
			return nil
		}
		e.Details = word
	}
	return e
}

// isPolicy reports whether a text is the name of a rule of an AuthorizationPolicy, as details of responses have it.
func isPolicy(text string) bool {
	return !strings.HasPrefix(text, policyDetails) && (strings.HasSuffix(text, badCustom) || strings.Contains(text, "]-policy["))
}

// knownFlags reports whether each part of a text is a flag of Envoy's.
func knownFlags(text string) bool {
	for name := range strings.SplitSeq(text, ",") {
		if _, ok := FlagMeaning(name); !ok {
			return false
		}
	}
	return true
}

// parseResponse reads the body of a response that Envoy gives itself, also behind the words of a client, as in "error:
// no healthy upstream". It returns nil for other texts.
func parseResponse(text string) *Entry {
	lower := strings.ToLower(text)
	for _, r := range responses() {
		at := strings.Index(lower, strings.ToLower(r.body))
		if at < 0 || at > 0 && !strings.HasSuffix(lower[:at], ": ") && !strings.HasSuffix(lower[:at], "= ") &&
			!strings.ContainsAny(lower[at-1:at], "\n\"'") {
			continue
		}
		e := &Entry{Kind: Response, Format: "a response of Envoy", Code: r.code, HasCode: r.code != 0, Details: r.details}
		if r.flag != "" {
			e.Flags = []string{r.flag}
		}
		if r.body == connectError {
			e.resets(lower[at:], text[at:])
		}
		return e
	}
	return nil
}

// resets reads the reason in the response to a connection that failed.
func (e *Entry) resets(lower, text string) {
	if len(lower) != len(text) { // a letter has another length in lower case
		text = lower
	}
	const transport = "transport failure reason:"
	if at := strings.Index(lower, transport); at >= 0 {
		e.Transport = strings.TrimSpace(text[at+len(transport):])
	}
	for _, r := range []struct{ words, flag string }{
		{"connection failure", "UF"}, {"connection timeout", "UF"}, {"connection termination", "UC"}, {"remote reset", "UR"},
		{"local reset", "LR"}, {"overflow", "UO"}, {"protocol error", "UPE"},
	} {
		_, reason, _ := strings.Cut(lower, "reset reason:")
		reason, _, _ = strings.Cut(reason, transport)
		if strings.Contains(reason, r.words) {
			e.Flags = []string{r.flag}
			e.Details = "upstream_reset_before_response_started{" + strings.ReplaceAll(r.words, " ", "_") + "}"
			return
		}
	}
}
