package bootstrap

import (
	"cmp"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// record adds a push to the log, before its snapshot is published. It began to be made at one time, and was made at
// another; now its translation is prepared.
func (s *Server) record(snap *snapshot.Snapshot, batch []kinds.Change, received, began, made time.Time) {
	now := time.Now()
	c := pushes.Commit{
		Revision: snap.Revision, Full: snap.Diff.Full, Triggers: snap.Diff.Triggers,
		Received: received, Began: began, Published: now, Snapshot: made.Sub(began), Prepare: now.Sub(made),
	}
	c.Objects, c.More = causes(snap, batch)
	s.pushes.Add(c)
}

// causes returns the objects of a batch that may have caused a push, and how many more there are. Those that are
// translated and differ come first, then services, then the rest: of a batch some may have changed nothing.
func causes(snap *snapshot.Snapshot, batch []kinds.Change) (list []pushes.Object, more int) {
	const others = 2
	differ := make(map[kinds.Key]bool, len(snap.Diff.Configs))
	for _, c := range snap.Diff.Configs {
		if o := cmp.Or(c.New, c.Old); o != nil {
			differ[o.Key] = true
		}
	}
	for rank := range others + 1 {
		for i := range batch {
			c := &batch[i]
			is := others
			switch {
			case differ[c.Key]:
				is = 0
			case c.Kind == kinds.Service || c.Kind == kinds.EndpointSlice || c.Kind == kinds.ServiceEntry:
				is = 1
			}
			if is != rank {
				continue
			}
			if len(list) == pushes.MaxCauses {
				return list, len(batch) - len(list)
			}
			list = append(list, objectOf(c.Key, c.Object))
		}
	}
	return slices.Clip(list), 0
}

// objectOf describes an object; nil is one that is gone.
func objectOf(k kinds.Key, o *kinds.Object) pushes.Object {
	x := pushes.Object{Kind: k.Kind.Name, Namespace: k.Namespace, Name: k.Name, Gone: o == nil}
	if o != nil {
		x.Position = o.Position
	}
	return x
}
