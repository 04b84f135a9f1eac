package ingest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// factTimeout bounds how long the first snapshot waits for facts, so that a server that starts does not deny requests
// that were allowed before. Later snapshots do not wait: answers arrive as changes.
const factTimeout = 6 * time.Second

// isFact reports whether a kind is one of the facts that translations read.
func (w *World) isFact(k *kinds.Kind) bool { return w.parts.Facts[k] != nil }

// applyFacts applies answers, and passes the current needs of objects to the providers.
func (w *World) applyFacts(answers []kinds.Change) {
	w.builder.ApplyFacts(answers)
	w.builder.ApplyServicePorts()
	latest := time.Now().Add(factTimeout)
	var asked []*kinds.Kind
	for kind, p := range w.parts.Facts {
		if needs := w.builder.Wanted(kind); !slices.EqualFunc(needs, w.wanted[kind], facts.Need.Equal) {
			w.wanted[kind] = needs
			p.Want(needs)
			asked = append(asked, kind)
		}
	}
	if w.last != nil {
		return
	}
	for _, kind := range asked {
		w.builder.ApplyFacts(w.parts.Facts[kind].Wait(time.Until(latest)))
	}
}

// failingFacts returns a finding for each field that needs a fact whose look-up fails.
func (w *World) failingFacts() (list []diag.Diagnostic) {
	last := w.Snapshot()
	if last == nil {
		return nil
	}
	found := func(want snapshot.Want, code, message, fix string) {
		d := diag.Diagnostic{Severity: diag.Warning, Code: code, Object: want.Object.String(), Field: want.Field, Message: message, Fix: fix}
		if o := w.Object(want.Object); o != nil {
			d = d.At(o.Position)
		}
		list = append(list, d)
	}
	failing := map[*kinds.Kind]map[string]facts.Failure{}
	for kind, p := range w.parts.Facts {
		failing[kind] = p.Failing()
	}
	for want := range last.Wants {
		missing := last.Fact(want.Key) == nil
		if want.Key.Kind == kinds.ServicePort && missing && want.Without != "" {
			found(want, "NoService", "no service of the mesh has "+want.Key.Name+": "+want.Without, "add a ServiceEntry for it")
		}
		if _, asked := failing[want.Key.Kind]; !asked && want.Key.Kind == kinds.JWKS && want.Without != "" {
			found(want, "KeysNotFetched", "keys are not fetched here, so what is shown accepts no token of this rule", "a server fetches them")
			continue
		}
		f, fails := failing[want.Key.Kind][want.Key.Name]
		if !fails {
			continue
		}
		applies := "the last answer stays in force"
		if missing {
			applies = want.Without
		}
		found(want, "FactFailing", fmt.Sprintf(
			"%s is unavailable since %s: %s; %s", want.Key.Kind.Name, f.Since.UTC().Format(time.RFC3339), f.Why, applies,
		),
			"check that this server can reach its source; it retries by itself")
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field))
	})
	return w.Located(list)
}
