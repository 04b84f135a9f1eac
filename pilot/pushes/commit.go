package pushes

import (
	"cmp"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// CommitOf describes the commit of a batch that is about to be published. The snapshot was made from began to made, and
// its translation was prepared from made until now.
func CommitOf(snap *snapshot.Snapshot, batch []kinds.Change, received, began, made time.Time) Commit {
	now := time.Now()
	c := Commit{
		Revision: snap.Revision, Full: snap.Diff.Full, Triggers: snap.Diff.Triggers,
		Received: received, Began: began, Published: now, Snapshot: made.Sub(began), Prepare: now.Sub(made),
	}
	c.Objects, c.More = causes(snap, batch)
	return c
}

// causes returns the objects of a batch that may have caused a push, and the number of other objects. Changed objects
// that translations read come first, then services and endpoints, then the rest, because some objects of a batch may
// have changed nothing.
func causes(snap *snapshot.Snapshot, batch []kinds.Change) (list []Object, more int) {
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
			if len(list) == MaxCauses {
				return list, len(batch) - len(list)
			}
			list = append(list, ObjectOf(c.Key, c.Object))
		}
	}
	return slices.Clip(list), 0
}

// ObjectOf describes the object with a key. A nil object was deleted.
func ObjectOf(k kinds.Key, o *kinds.Object) Object {
	x := Object{Kind: k.Kind.Name, Namespace: k.Namespace, Name: k.Name, Gone: o == nil}
	if o != nil {
		x.Position = o.Position
	}
	return x
}
