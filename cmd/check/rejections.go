package check

import (
	"context"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// rejections returns the rejections in the push logs of all replicas, the newest last.
func (s Server) rejections(ctx context.Context) (list []pushes.Rejection) {
	answers, err := debug.AskAll(ctx, s.Get, "pushes?limit=0")
	if err != nil {
		return nil // an older server has no such page
	}
	_ = debug.ReadAll(answers, func(_ *debug.Replica, page pushes.Page) {
		for _, p := range page.Pushes {
			list = append(list, p.Rejections...)
		}
		list = append(list, page.Unprompted.Rejections...)
	})
	return list
}

// makers returns the kinds whose objects add configuration as the user has written it. Most rejections come from them.
// The most frequent kind is first.
func makers() []string { return []string{"EnvoyFilter", "TrafficExtension", "WasmPlugin"} }

// mends returns the command that corrects a rejection of one type: it deletes or edits the object behind it. If no
// object is known, it returns show.
func mends(list []pushes.Rejection, proxy, short, show string) string {
	for _, x := range slices.Backward(list) {
		if !strings.EqualFold(x.Type, short) || x.Proxy != proxy && x.Proxies < 2 {
			continue
		}
		var culprit *pushes.Object
		rank := len(makers())
		for i, o := range x.Sources {
			at := slices.Index(makers(), o.Kind)
			if at >= 0 && at < rank {
				culprit, rank = &x.Sources[i], at
			} else if o.Changed && culprit == nil {
				culprit = &x.Sources[i]
			}
		}
		switch {
		case culprit == nil || culprit.Gone:
		case culprit.Position != "":
			return "edit " + culprit.Position + "  # " + culprit.String() + ": " + show
		default:
			return "kubectl -n " + culprit.Namespace + " delete " + strings.ToLower(culprit.Kind) + " " + culprit.Name + "  # or edit it: " + show
		}
	}
	return show
}
