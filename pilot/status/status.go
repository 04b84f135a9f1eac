package status

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Code is the name and the ID of a code of findings in a status.
type Code struct{ ID, Name, URL string }

// Names of the written fields.
const (
	messages   = "validationMessages"
	generation = "observedGeneration"
	conditions = "conditions"

	passed   = "PassedAnalysis"
	clean    = "noErrorsFound"
	mistakes = "errorsFound"
)

// wanted is the wanted status of an object.
type wanted struct {
	object   *kinds.Object // the analysed version; nil if no version is accepted
	unusable bool          // the version in the API server is not accepted; object, if any, is an older one
	messages []any         // in JSON's types
	summary  string        // message of the condition; empty if there are no messages
}

// want returns the wanted status of each object of the API server that has findings.
func want(findings []diag.Diagnostic, object func(kinds.Key) *kinds.Object, describe func(string) Code) map[kinds.Key]wanted {
	byKey := map[kinds.Key][]diag.Diagnostic{}
	for _, d := range findings {
		if d.File != "" || d.Code == codeNotWritten { // the status would report an earlier failure to write it
			continue
		}
		if key, ok := keyNamed(d.Object); ok {
			byKey[key] = append(byKey[key], d)
		}
	}
	out := map[kinds.Key]wanted{}
	for key, list := range byKey {
		if elsewhere(key, object) {
			continue
		}
		slices.SortFunc(list, func(a, b diag.Diagnostic) int {
			return cmp.Or(
				cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message),
			)
		})
		w := wanted{object: object(key)} // an invalid object has no accepted version, but still gets a status
		count := map[diag.Severity]int{}
		for _, d := range list {
			count[d.Severity]++
			w.unusable = w.unusable || config.IsUnusable(d)
			code := describe(d.Code)
			m := map[string]any{"level": strings.ToUpper(d.Severity.String()), "type": map[string]any{"code": code.ID, "name": code.Name}}
			if code.URL != "" {
				m["documentationUrl"] = code.URL
			}
			w.messages = append(w.messages, m)
		}
		w.summary = fmt.Sprintf(
			"%s, %s, %s: ", number(count[diag.Error], "error"), number(count[diag.Warning], "warning"), number(count[diag.Info], "info"),
		) + texts(list)
		out[key] = w
	}
	return out
}

// texts returns the texts of findings, one per line and the worst first: which object takes precedence and by which
// rule, or what is rejected and why. The last line is the number of omitted findings.
func texts(list []diag.Diagnostic) string {
	const longest, most = 1024, 4096 // bytes of one text, and of all
	var b strings.Builder
	for i, d := range list {
		d.Object, d.Code = "", ""
		_, text, _ := strings.Cut(d.String(), ": ")
		if len(text) > longest {
			text = strings.ToValidUTF8(text[:longest], "") + "…"
		}
		if i > 0 {
			if b.Len()+len(text) > most {
				fmt.Fprintf(&b, "\nand %d more", len(list)-i)
				break
			}
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

// elsewhere reports whether a key is not of an object of the API server, or may be of another group: findings name
// Istio's Gateways in the same way as the Gateway API's.
func elsewhere(key kinds.Key, object func(kinds.Key) *kinds.Object) bool {
	if o := object(key); o != nil && (o.Position != "" || o.Relayed) {
		return true
	}
	return key.Kind == kinds.Gateway && object(kinds.Key{Kind: kinds.KubeGateway, Namespace: key.Namespace, Name: key.Name}) != nil
}

// number returns "1 error", "2 errors".
func number(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// stale reports whether an object is not the analysed version.
func (w wanted) stale(u *unstructured.Unstructured) bool {
	o := w.object
	switch {
	case o == nil:
		return !w.unusable && len(w.messages) == 0 // it has not been analysed yet
	case o.UID != "" && o.UID != string(u.GetUID()):
		return true
	}
	return !w.unusable && o.Generation != 0 && o.Generation != u.GetGeneration()
}

// keyNamed returns the key of an Istio object from its text in findings, such as "VirtualService a/web".
func keyNamed(text string) (kinds.Key, bool) {
	kind, name, _ := strings.Cut(text, " ")
	ns, name, namespaced := strings.Cut(name, "/")
	if !namespaced || strings.Contains(name, " ") { // "of cluster" names another cluster
		return kinds.Key{}, false
	}
	for _, k := range kinds.All() {
		if k.Istio && k.Name == kind {
			return kinds.Key{Kind: k, Namespace: ns, Name: name}, true
		}
	}
	return kinds.Key{}, false
}

// patch returns the parts of a status that differ from the wanted one, or nil. If leaves is true, they have no
// observedGeneration.
func patch(u *unstructured.Unstructured, w wanted, now time.Time, leaves bool) map[string]any {
	old, _, _ := unstructured.NestedMap(u.Object, "status")
	next := map[string]any{messages: append([]any{}, w.messages...)}
	if !leaves {
		next[generation] = u.GetGeneration()
	}
	if len(w.messages) == 0 && len(list(old, messages)) == 0 && conditionOf(old, passed) == nil {
		return nil
	}
	c := map[string]any{
		"type": passed, "status": "False", "reason": mistakes, "message": w.summary, "lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
	if len(w.messages) == 0 {
		c["status"], c["reason"], c["message"] = "True", clean, "nothing is wrong"
	}
	before := conditionOf(old, passed)
	if before != nil && before["status"] == c["status"] && before["lastTransitionTime"] != nil {
		c["lastTransitionTime"] = before["lastTransitionTime"]
	}
	all := slices.DeleteFunc(slices.Clone(list(old, conditions)), isOurs)
	next[conditions] = append(all, c)
	if before != nil && same(before, c) && reflect.DeepEqual(append([]any{}, list(old, messages)...), next[messages]) &&
		(leaves || observed(old) == u.GetGeneration()) {
		return nil
	}
	return next
}

func list(status map[string]any, name string) []any {
	l, _ := status[name].([]any)
	return l
}

func isOurs(c any) bool {
	m, ok := c.(map[string]any)
	return ok && m["type"] == passed
}

// same reports whether two conditions are equal in the fields that are written here.
func same(a, b map[string]any) bool {
	for name, value := range b {
		if a[name] != value {
			return false
		}
	}
	return true
}

// observed returns the observedGeneration of a status, a number or a text, or 0 if there is none.
func observed(status map[string]any) int64 {
	switch v := status[generation].(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	case string:
		var n int64
		if _, err := fmt.Sscan(v, &n); err == nil {
			return n
		}
	}
	return 0
}
