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

// allPushes is the pages of all replicas in one.
type allPushes struct {
	pushes.Page                // page of the server at --address, with the pushes of all replicas, oldest first
	Replicas    []replicaState `json:"replicas,omitempty"` // missing if there is only one

	answers []debug.Replica
	newest  map[string]uint64 // ID of the newest push by replica
}

// replicaState is the state of one replica.
type replicaState struct {
	Name       string       `json:"name"`
	Version    string       `json:"version,omitempty"`
	Error      string       `json:"error,omitempty"`      // why it did not answer
	Unprompted *pushes.Push `json:"unprompted,omitempty"` // as in pushes.Page; missing with an Error
}

// mergePushes merges the answers of replicas into one page, with at most limit pushes, or all if limit is 0.
func mergePushes(list []debug.Replica, limit int) (all allPushes, err error) {
	unprompted := map[string]*pushes.Push{}
	all.newest = map[string]uint64{}
	err = debug.ReadAll(list, func(r *debug.Replica, page pushes.Page) {
		if len(list) == 1 {
			all.Page, all.newest[""] = page, page.Newest
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

// unprompted returns the rejections of resources that proxies requested themselves, of all replicas.
func (p *allPushes) unprompted() []pushes.Rejection {
	list := p.Unprompted.Rejections
	for _, r := range p.Replicas[min(1, len(p.Replicas)):] {
		if r.Unprompted != nil {
			list = append(list, r.Unprompted.Rejections...)
		}
	}
	return list
}

// Intervals and limits of a watch.
const (
	patience   = 2 * time.Second // time limit for the acknowledgements of a push before it is written
	pollOne    = 100 * time.Millisecond
	pollAll    = time.Second
	watchLimit = 100 // number of pushes of all replicas in one request
)

// nextPage returns the pages of a watch one after the other. done has the ID of the last written push by replica. held
// reports whether pushes of the previous page wait for acknowledgements.
type nextPage func(ctx context.Context, done map[string]uint64, held bool) (allPushes, error)

// nextOfOne returns the pages of the only replica, which answers when it has a new push.
func nextOfOne(ask func(ctx context.Context, query string) (pushes.Page, error)) nextPage {
	return func(ctx context.Context, done map[string]uint64, held bool) (allPushes, error) {
		query := "watch&"
		if held {
			query = ""
			if err := pauseFor(ctx, pollOne); err != nil {
				return allPushes{}, err
			}
		}
		page, err := ask(ctx, fmt.Sprintf("%ssince=%d", query, done[""]))
		if err == nil && page.Newest < done[""] { // the server was restarted, and its IDs begin again
			page, err = ask(ctx, "since=0")
		}
		return allPushes{Page: page, newest: map[string]uint64{"": page.Newest}}, err
	}
}

// nextOfAll polls the pages of all replicas.
func nextOfAll(ask func(ctx context.Context, limit int) (allPushes, error)) nextPage {
	return func(ctx context.Context, _ map[string]uint64, _ bool) (allPushes, error) {
		if err := pauseFor(ctx, pollAll); err != nil {
			return allPushes{}, err
		}
		return ask(ctx, watchLimit)
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch writes the pushes of a page, and then each later one, once it is acknowledged or patience has passed.
func (w *writer) watch(ctx context.Context, next nextPage, page allPushes) error {
	w.several = len(page.Replicas) > 0
	told := debug.Incomplete(page.answers)
	cli.TellIncomplete(w.said, page.answers)
	if err := w.each(page.Pushes); err != nil {
		return err
	}
	done, seen := page.newest, map[string]time.Time{}
	held := map[string]bool{} // replicas with a push that waits for acknowledgements, before which later ones are not written
	for {
		var err error
		if page, err = next(ctx, done, len(held) > 0); err != nil {
			return err
		}
		if now := debug.Incomplete(page.answers); !slices.Equal(now, told) {
			told = now
			cli.TellIncomplete(w.said, page.answers)
		}
		for name, id := range page.newest {
			if id < done[name] { // the server was restarted, and its IDs begin again
				done[name] = 0
			}
		}
		clear(held)
		var list []pushes.Push
		for _, p := range page.Pushes {
			if p.ID <= done[p.Replica] || held[p.Replica] {
				continue
			}
			key := fmt.Sprint(p.Replica, " ", p.ID)
			if _, ok := seen[key]; !ok {
				seen[key] = time.Now()
			}
			if unsettled(p) && time.Since(seen[key]) < patience {
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
