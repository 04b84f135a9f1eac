package status

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// Types of the conditions about whether an object is in force.
const (
	reconciled  = "Reconciled"
	reconciling = "Reconciling" // only present while it is True
	stalled     = "Stalled"     // only present while it is True
)

// Statuses of a condition.
const (
	isTrue    = "True"
	isFalse   = "False"
	isUnknown = "Unknown"
)

// outcome is what the conditions say about one generation of an object.
type outcome struct {
	reconciled, reason, message string // status, reason and message of Reconciled
	reconciling, stalled        string // their messages; empty if the condition is absent
}

// outcomeOf returns what the conditions say for an answer. ok is false for a version that is not read yet or was
// replaced: the conditions say nothing about it.
func outcomeOf(a *progress.Answer) (o outcome, ok bool) {
	o = outcome{reconciled: isFalse, reason: strings.ReplaceAll(words(string(a.State)), " ", ""), message: a.Numbers()}
	switch a.State {
	case progress.InForce:
		o.reconciled = isTrue
	case progress.WithoutEffect:
		o.reconciled, o.message = isTrue, lasting(a.Why)
	case progress.Behind:
		o.reconciling = awaited(a)
	case progress.Unknown:
		o.reconciled, o.reconciling = isUnknown, awaited(a)
	case progress.Rejected:
		o.stalled = rejections(a)
	case progress.Invalid:
		o.message, o.stalled = a.Why, a.Why
		list := lists.Filter(a.Findings, func(d diag.Diagnostic) bool { return d.Severity == diag.Error || config.IsUnusable(d) })
		if len(list) > 0 {
			o.stalled = texts(list)
		}
	default:
		return outcome{}, false
	}
	return o, true
}

// positive reports whether the version is in force, or has no effect.
func (o outcome) positive() bool { return o.reconciled == isTrue }

// words returns a text with capital letters at the beginnings of its words.
func words(text string) string {
	list := strings.Fields(text)
	for i, w := range list {
		list[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(list, " ")
}

// lasting returns why a version has no effect, in words that stay true when proxies connect later, because no status is
// written at that time.
func lasting(why string) string {
	const later = "; proxies that connect later get it before they are ready"
	switch why {
	case progress.NoProxy:
		return "no proxy was connected" + later
	case progress.NoChanges:
		return "it changed nothing that a connected proxy was sent" + later
	case progress.Unreached:
		return "a finding said that it reached no proxy" + later
	}
	return why
}

// maxNamed is the number of proxies that a message names. The message of each has at most 512 bytes: see xds.Owing.
const maxNamed = 3

// awaited returns what is awaited.
func awaited(a *progress.Answer) string {
	var list []string
	for i := range min(len(a.Owing), maxNamed) {
		o := &a.Owing[i]
		list = append(list, fmt.Sprintf("%s since %s", o.Proxy, o.Since.UTC().Format(time.RFC3339)))
	}
	return summary("waiting for ", list, len(a.Owing)+a.More, a.Why)
}

// rejections returns what proxies say about a version that they reject.
func rejections(a *progress.Answer) string {
	var list []string
	for i := range a.Owing {
		o := &a.Owing[i]
		if o.State == string(progress.Rejected) && len(list) < maxNamed {
			list = append(list, fmt.Sprintf("%s rejects it (%s): %s", o.Proxy, o.Type, o.Message))
		}
	}
	return summary("", list, a.Proxies.Rejected, a.Why)
}

// summary joins the first of all texts and a reason, either of which may be missing.
func summary(begin string, list []string, all int, why string) string {
	text := strings.Join(list, ", ")
	if more := all - len(list); more > 0 && text != "" {
		text += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case text == "" && why == "":
		return "not all proxies have acknowledged it"
	case text == "":
		return why
	case why == "":
		return begin + text
	}
	return why + "; " + begin + text
}

// conditionOf returns the condition of a type, or nil.
func conditionOf(status map[string]any, name string) map[string]any {
	for _, c := range list(status, conditions) {
		if m, ok := c.(map[string]any); ok && m["type"] == name {
			return m
		}
	}
	return nil
}

// holds reports whether a status says, about one generation, that it is in force.
func holds(status map[string]any, of int64) bool {
	c := conditionOf(status, reconciled)
	return c != nil && c["status"] == isTrue && exact(status[generation]) == of && exact(c[generation]) == of &&
		conditionOf(status, reconciling) == nil && conditionOf(status, stalled) == nil
}

// exact returns a JSON number, or -1 for another value, such as a number in a string.
func exact(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return -1
}

// conditionsPatch returns the parts of a status that differ from what an outcome says about the generation of an
// object, or nil.
func conditionsPatch(u *unstructured.Unstructured, o outcome, now time.Time) map[string]any {
	old, _, _ := unstructured.NestedMap(u.Object, "status")
	at, changed := u.GetGeneration(), false
	var next []any
	for _, c := range list(old, conditions) {
		if m, ok := c.(map[string]any); ok && (m["type"] == reconciled || m["type"] == reconciling || m["type"] == stalled) {
			continue
		}
		next = append(next, c)
	}
	ours := len(list(old, conditions)) - len(next)
	for _, c := range []struct{ name, status, reason, message string }{
		{reconciled, o.reconciled, o.reason, o.message},
		{reconciling, isTrue, o.reason, o.reconciling},
		{stalled, isTrue, o.reason, o.stalled},
	} {
		if c.message == "" {
			continue
		}
		m := map[string]any{
			"type": c.name, "status": c.status, "reason": c.reason, "message": c.message, generation: at,
			transitionTime: now.UTC().Format(time.RFC3339),
		}
		before := conditionOf(old, c.name)
		if before != nil && before["status"] == c.status && before[transitionTime] != nil {
			m[transitionTime] = before[transitionTime]
		}
		changed = changed || before == nil || exact(before[generation]) != at ||
			before["status"] != c.status || before["reason"] != c.reason || before["message"] != c.message
		ours--
		next = append(next, m)
	}
	if !changed && ours == 0 && exact(old[generation]) == at {
		return nil
	}
	return map[string]any{generation: at, conditions: next}
}
