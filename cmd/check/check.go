package check

import (
	"fmt"
	"slices"
	"time"
)

// State is the outcome of one check.
type State string

// The outcomes of a check.
const (
	OK      State = "ok"
	Warning State = "warning" // it works, but needs attention
	Wrong   State = "wrong"   // it does not work, or will soon stop working
	Skipped State = "skipped" // it was not checked
)

// Result is what one check found.
type Result struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"` // what the check saw
	Fix    string `json:"fix,omitempty"`    // the command that corrects it or shows more
}

// Report holds the results of all checks, in order.
type Report struct {
	Results []Result
	group   string
}

// Wrong reports whether a result has the state Wrong.
func (r *Report) Wrong() bool {
	return slices.ContainsFunc(r.Results, func(x Result) bool { return x.State == Wrong })
}

// Count returns how many results have a state.
func (r *Report) Count(s State) int {
	n := 0
	for _, x := range r.Results {
		if x.State == s {
			n++
		}
	}
	return n
}

// begin starts a group. The results that are added next belong to it.
func (r *Report) begin(group string) { r.group = group }

func (r *Report) add(s State, name, fix, detail string) {
	r.Results = append(r.Results, Result{r.group, name, s, detail, fix})
}

func (r *Report) ok(name, format string, args ...any) {
	r.add(OK, name, "", fmt.Sprintf(format, args...))
}

func (r *Report) skip(name, fix, format string, args ...any) {
	r.add(Skipped, name, fix, fmt.Sprintf(format, args...))
}

func (r *Report) warn(name, fix, format string, args ...any) {
	r.add(Warning, name, fix, fmt.Sprintf(format, args...))
}

func (r *Report) wrong(name, fix, format string, args ...any) {
	r.add(Wrong, name, fix, fmt.Sprintf(format, args...))
}

// A certificate that expires within these times is a warning, or wrong.
const (
	expiresSoon   = 30 * 24 * time.Hour
	expiresAtOnce = 7 * 24 * time.Hour
)

// expiry adds a result about the end of a certificate.
func (r *Report) expiry(name string, end, now time.Time, fix string) {
	left := end.Sub(now)
	switch {
	case left <= 0:
		r.wrong(name, fix, "it expired at %s", end.UTC().Format(time.RFC3339))
	case left < expiresAtOnce:
		r.wrong(name, fix, "it expires in %s", span(left))
	case left < expiresSoon:
		r.warn(name, fix, "it expires in %s", span(left))
	default:
		r.ok(name, "expires in %s", span(left))
	}
}

// span formats a duration in days or hours, as people say it.
func span(d time.Duration) string {
	switch days := int(d.Hours() / 24); {
	case days >= 2:
		return fmt.Sprintf("%d days", days)
	case d >= time.Hour:
		return d.Truncate(time.Minute).String()
	}
	return d.Truncate(time.Second).String()
}
