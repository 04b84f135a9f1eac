package pushes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// allPushes is the pages of all replicas as one.
type allPushes struct {
	pushes.Page                // of the server that was asked, with the pushes of all replicas, oldest first
	Replicas    []replicaState `json:"replicas,omitempty"` // missing if there is one

	answers []debug.Replica
	newest  map[string]uint64 // the ID of the newest push, by replica
}

// replicaState is how one replica stands.
type replicaState struct {
	Name       string       `json:"name"`
	Version    string       `json:"version,omitempty"`
	Error      string       `json:"error,omitempty"`      // why it did not answer
	Unprompted *pushes.Push `json:"unprompted,omitempty"` // as in pushes.Page; missing with an Error
}

// mergePushes makes one page of what replicas answer, with at most limit pushes; 0: all.
func mergePushes(list []debug.Replica, limit int) (all allPushes, err error) {
	unprompted := map[string]*pushes.Push{}
	all.newest = map[string]uint64{}
	err = debug.ReadAll(list, func(r *debug.Replica, page pushes.Page) {
		if len(list) == 1 {
			all.Page = page
			return
		}
		for i := range page.Pushes {
			page.Pushes[i].Replica = r.Name
		}
		unprompted[r.Name], all.newest[r.Name] = &page.Unprompted, page.Newest
		if !r.Self {
			all.Pushes = append(all.Pushes, page.Pushes...)
			return
		}
		page.Pushes = append(page.Pushes, all.Pushes...)
		all.Page = page
	})
	if len(list) == 1 || err != nil {
		return all, err
	}
	slices.SortStableFunc(all.Pushes, func(a, b pushes.Push) int { return a.Time.Compare(b.Time) })
	if limit > 0 {
		all.Pushes = all.Pushes[max(0, len(all.Pushes)-limit):]
	}
	for _, r := range list {
		all.Replicas = append(all.Replicas, replicaState{r.Name, r.Version, r.Error, unprompted[r.Name]})
	}
	all.answers = list
	return all, nil
}

// unprompted returns the rejections of what proxies asked for by themselves, of all replicas.
func (p *allPushes) unprompted() []pushes.Rejection {
	list := p.Unprompted.Rejections
	for _, r := range p.Replicas[min(1, len(p.Replicas)):] {
		if r.Unprompted != nil {
			list = append(list, r.Unprompted.Rejections...)
		}
	}
	return list
}

// How often a watch asks all replicas, and how much it shows.
const (
	watchEvery = time.Second
	watchLimit = 100 // pushes of all replicas that one look shows
)

// watchAll writes the pushes of all replicas, and then each one that comes, once it is acknowledged or some time has
// passed.
func (w *writer) watchAll(ctx context.Context, ask func(context.Context, int) (allPushes, error), page allPushes) error {
	w.several = true
	told := debug.Incomplete(page.answers)
	cli.TellIncomplete(w.said, page.answers)
	if err := w.each(page.Pushes); err != nil {
		return err
	}
	done, seen := page.newest, map[string]time.Time{}
	for {
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		if page, err = ask(ctx, watchLimit); err != nil {
			return err
		}
		if now := debug.Incomplete(page.answers); !slices.Equal(now, told) {
			told = now
			cli.TellIncomplete(w.said, page.answers)
		}
		for name, id := range page.newest {
			if id < done[name] { // it was started again, and counts from the beginning
				done[name] = 0
			}
		}
		var list []pushes.Push
		held := map[string]bool{} // replicas with a push that waits for acknowledgements: later ones wait behind it
		for _, p := range page.Pushes {
			if p.ID <= done[p.Replica] || held[p.Replica] {
				continue
			}
			key := fmt.Sprint(p.Replica, " ", p.ID)
			if _, ok := seen[key]; !ok {
				seen[key] = time.Now()
			}
			if unsettled(pushes.Page{Pushes: []pushes.Push{p}}) && time.Since(seen[key]) < patience {
				held[p.Replica] = true
				continue
			}
			delete(seen, key)
			done[p.Replica] = p.ID
			list = append(list, p)
		}
		if err := w.each(list); err != nil {
			return err
		}
	}
}
