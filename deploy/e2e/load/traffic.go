package load

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// Traffic is a steady load from several clients.
type Traffic []*Run

// Begin sends with each sender until the test ends. A failed request fails the test, unless the machine was starved.
func Begin(t *testing.T, o Options, senders ...func(context.Context) (string, error)) Traffic {
	t.Helper()
	var tr Traffic
	for i, send := range senders {
		o.Send = send
		r := Start(context.WithoutCancel(t.Context()), o)
		t.Cleanup(func() {
			report := r.Stop()
			t.Logf("load %d: %s %v", i, report, report.From)
			if report.Answered == 0 {
				t.Errorf("load %d: no request was answered", i)
			}
			if err := report.Err(); err != nil {
				t.Errorf("load %d: %v", i, err)
			}
		})
		tr = append(tr, r)
	}
	return tr
}

// Err returns the failures so far, or nil.
func (tr Traffic) Err() error {
	for i, r := range tr {
		if err := r.Report().Err(); err != nil {
			return fmt.Errorf("load %d: %w", i, err)
		}
	}
	return nil
}

// Starved reports whether the machine was too busy.
func (tr Traffic) Starved() bool {
	return slices.ContainsFunc(tr, func(r *Run) bool { return r.Report().Starved() })
}

// Heard returns the number of answers from a server to all loads.
func (tr Traffic) Heard(server string) int {
	return tr.sum(func(r Report) int { return r.From[server] })
}

func (tr Traffic) sum(of func(Report) int) int {
	n := 0
	for _, r := range tr {
		n += of(r.Report())
	}
	return n
}

// Answers waits until the server has answered every load a few more times.
func (tr Traffic) Answers(t *testing.T, server string) {
	t.Helper()
	want := make([]int, len(tr))
	for i, r := range tr {
		want[i] = r.Report().From[server] + 5
	}
	suite.Eventually(t, server+" answers", func() bool {
		for i, r := range tr {
			if r.Report().From[server] < want[i] {
				return false
			}
		}
		return true
	})
}

// Silent waits until other servers have answered the requests of a whole second, and the given server none.
func (tr Traffic) Silent(t *testing.T, server string) {
	t.Helper()
	enough := 0
	for _, r := range tr {
		enough += r.o.Rate
	}
	answered := func() int { return tr.sum(func(r Report) int { return r.Answered }) }
	heard, since := tr.Heard(server), answered()
	suite.Eventually(t, fmt.Sprintf("%d requests in a row pass %s by", enough, server), func() bool {
		if now := tr.Heard(server); now != heard {
			heard, since = now, answered()
		}
		return answered()-since >= enough
	})
}
