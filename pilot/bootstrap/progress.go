package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
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
	return slices.DeleteFunc(j.s.objectFindings(), func(d diag.Diagnostic) bool { return d.Object != name })
}

// Unread implements progress.Judge.
func (j judge) Unread(k kinds.Key) string { return j.s.from.WhyUnread(k) }

// Unneeded implements progress.Judge.
func (j judge) Unneeded(k kinds.Key) string { return j.s.from.Unneeded(k) }

// newProgress returns the Tracker of a server, which knows what is in force.
func (s *Server) newProgress(kept *archive.Archive, others otherReplicas) *progress.Tracker {
	return progress.New(progress.Options{
		Streams: s.discovery, Archive: kept, World: s.world, Judge: judge{s}, Replicas: others, Name: s.o.Instance(),
	})
}

// Generation returns the generation that the API server has of an object now.
func (v view) Generation(ctx context.Context, k kinds.Key) (int64, error) {
	if v.s.o.Client == nil {
		return 0, fmt.Errorf("%w: generation=current: this server reads no API server", debug.ErrBadQuery)
	}
	return crd.Generation(ctx, v.s.o.Client, k)
}
