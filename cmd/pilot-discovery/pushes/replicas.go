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

// Times and bounds of a watch.
const (
	patience   = 2 * time.Second // how long it waits for the acknowledgements of a push before it writes what there is
	pollOne    = 100 * time.Millisecond
	pollAll    = time.Second
	watchLimit = 100 // pushes of all replicas that one look shows
)

// nextPage returns the pages of a watch one after the other. done has the ID of the last push that was written, by
// replica. held reports whether pushes of the page before wait for acknowledgements.
type nextPage func(ctx context.Context, done map[string]uint64, held bool) (allPushes, error)

// nextOfOne returns the pages of the only replica, which answers once it has a push to come.
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
		if err == nil && page.Newest < done[""] { // it was started again, and counts from the beginning
			page, err = ask(ctx, "since=0")
		}
		return allPushes{Page: page, newest: map[string]uint64{"": page.Newest}}, err
	}
}

// nextOfAll returns the pages of all replicas, one in a while.
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

// watch writes the pushes of a page, and then each one that comes, once it is acknowledged or some time has passed.
func (w *writer) watch(ctx context.Context, next nextPage, page allPushes) error {
	w.several = len(page.Replicas) > 0
	told := debug.Incomplete(page.answers)
	cli.TellIncomplete(w.said, page.answers)
	if err := w.each(page.Pushes); err != nil {
		return err
	}
	done, seen := page.newest, map[string]time.Time{}
	held := map[string]bool{} // replicas with a push that waits for acknowledgements: later ones wait behind it
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
			if id < done[name] { // it was started again, and counts from the beginning
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
