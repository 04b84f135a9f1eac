package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// judge knows what is wrong with the objects of a server.
type judge struct{ s *Server }

// Unusable implements progress.Judge.
func (j judge) Unusable(k kinds.Key) (generation int64, is bool) {
	if generation, is = j.s.from.Unusable(k); !is && k.Kind == kinds.Secret {
		is = j.s.world.UnusableSecret(k)
	}
	return generation, is
}

// FindingsAbout implements progress.Judge.
func (j judge) FindingsAbout(k kinds.Key) []diag.Diagnostic {
	name := k.String()
	o, _, _ := j.s.world.Stored(k)
	return slices.DeleteFunc(j.s.objectFindings(), func(d diag.Diagnostic) bool { return d.Object != name && !config.BreaksFile(d, o) })
}

// Unread implements progress.Judge.
func (j judge) Unread(k kinds.Key) string { return j.s.from.WhyUnread(k) }

// Unneeded implements progress.Judge.
func (j judge) Unneeded(k kinds.Key) string { return j.s.from.Unneeded(k) }

// Idle implements progress.Judge.
func (j judge) Idle() map[string]bool {
	idle := map[string]bool{}
	for _, d := range j.s.objectFindings() {
		if analysis.SaysIdle(d) {
			idle[d.Object] = true
		}
	}
	return idle
}

// newProgress returns the Tracker of a server, which knows what is in force.
func (s *Server) newProgress(kept *archive.Archive, others otherReplicas) *progress.Tracker {
	return progress.New(progress.Options{
		Streams: s.discovery, Archive: kept, World: s.world, Judge: judge{s}, Replicas: others, Name: s.o.Instance(),
		Stopping: s.o.Drain + s.o.Shutdown,
	})
}

// Current returns a question about the version that the API server has of an object now.
func (v view) Current(ctx context.Context, k kinds.Key) (q progress.Question, err error) {
	q.Key = k
	if v.s.o.Client == nil {
		return q, fmt.Errorf("%w: generation=current: this server reads no API server", debug.ErrBadQuery)
	}
	now, err := crd.Current(ctx, v.s.o.Client, k)
	if err != nil {
		return q, err
	}
	if q.Generation, q.UID = now.Generation, now.UID; now.Object != nil {
		q.Version = archive.Content(now.Object)
	}
	return q, nil
}
