package inspect

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// maxSteps limits the number of steps in which a change is applied to find which object causes a difference. If more
// objects change, several share a step, and all of them are named.
const maxSteps = 64

// Texts parses the objects of files and returns them with findings about them. It returns an error if a server that
// reads the files would refuse to start.
func Texts(ctx context.Context, o ingest.Options, texts *file.Texts) ([]*kinds.Object, []diag.Diagnostic, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var list []*kinds.Object
	s := file.NewTexts(texts, file.Options{Logger: slog.New(slog.DiscardHandler), Limits: o.Limits, Handler: func(changes []kinds.Change) {
		for _, c := range changes {
			list = append(list, c.Object)
		}
		cancel()
	}})
	err := s.Run(ctx)
	return list, s.Findings(), err
}

// Changed is the effect of a change of objects.
type Changed struct {
	Objects []ObjectChange
	*diff.Difference
	New, Mended []diag.Diagnostic
}

// ObjectChange is one object before and after the change. Old is nil for a new object, and New for a deleted one.
type ObjectChange struct {
	kinds.Key
	Old, New *kinds.Object
}

// Object returns an object of a source, accepted or not, or nil.
func (i *Inspection) Object(k kinds.Key) *kinds.Object { return i.world.AllObjects()[k] }

// All returns all objects of the sources, accepted or not.
func (i *Inspection) All() map[kinds.Key]*kinds.Object { return i.world.AllObjects() }

// Change applies changes and returns their effect. found are the findings about the objects as they are written. The
// proxies are those of the Pods. It may be called once.
func (i *Inspection) Change(ctx context.Context, changes []kinds.Change, found []diag.Diagnostic) (*Changed, error) {
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	out, all := &Changed{}, i.world.AllObjects()
	taken := map[string]bool{}
	for _, c := range changes {
		old := all[c.Key]
		c.Object = kept(old, c.Object)
		taken[c.Key.String()] = true
		if old == nil && c.Object == nil || old != nil && c.Object != nil && config.Equal(old, c.Object) {
			continue
		}
		out.Objects = append(out.Objects, ObjectChange{c.Key, old, c.Object})
	}

	comparer := diff.New(i.translator)
	before := i.proxies()
	comparer.StateOfTheWorld = map[string]bool{} // a change does not replace the stream of a proxy
	for name := range before {
		comparer.StateOfTheWorld[name] = i.stateOfTheWorld(name)
	}
	first, err := comparer.Look(i.Snapshot, before)
	if err != nil {
		return nil, err
	}
	last := first
	var steps []diff.Step
	for part := range slices.Chunk(out.Objects, max(1, (len(out.Objects)+maxSteps-1)/maxSteps)) {
		var batch []kinds.Change
		var causes []diff.Cause
		for _, o := range part {
			batch = append(batch, kinds.Change{Key: o.Key, Object: o.New})
			c := diff.Cause{Key: o.Key, Deleted: o.New == nil}
			if o.New != nil {
				c.Position = o.New.Position
			} else {
				c.Position = o.Old.Position
			}
			causes = append(causes, c)
		}
		i.Snapshot, i.clusterIPs, i.byKind = i.world.Commit(batch, time.Time{}), nil, nil
		if err := i.readSecrets(ctx); err != nil {
			return nil, err
		}
		after := i.proxies()
		for name, p := range before { // a connected proxy does not change what it is
			if after[name] != nil {
				after[name] = p
			}
		}
		next, err := comparer.Look(i.Snapshot, after)
		if err != nil {
			return nil, err
		}
		steps = append(steps, diff.Step{Causes: causes, Difference: comparer.Compare(last, next)})
		last = next
	}
	out.Difference = comparer.Compare(first, last)
	diff.Attribute(out.Difference, steps)

	now := slices.DeleteFunc(slices.Clone(i.sources), func(d diag.Diagnostic) bool { return taken[d.Object] })
	was := i.Findings
	if i.Findings, err = i.findings(append(now, found...)); err != nil {
		return nil, err
	}
	out.New, out.Mended = without(i.Findings, was), without(was, i.Findings)
	return out, nil
}

// without returns the findings of a list that are not in another one. It ignores the position of an object.
func without(list, other []diag.Diagnostic) []diag.Diagnostic {
	bare := func(d diag.Diagnostic) diag.Diagnostic {
		if d.Object != "" {
			d.File = ""
		}
		d.Line, d.Column = 0, 0
		return d
	}
	had := map[diag.Diagnostic]int{}
	for _, d := range other {
		had[bare(d)]++
	}
	var out []diag.Diagnostic
	for _, d := range list {
		if had[bare(d)]--; had[bare(d)] < 0 {
			out = append(out, d)
		}
	}
	return out
}

// kept returns an object as an API server would store it: with the fields of the earlier version that files do not set.
func kept(old, now *kinds.Object) *kinds.Object {
	if old == nil || now == nil {
		return now
	}
	o := *now
	if o.Created.IsZero() {
		o.Created = old.Created
	}
	o.UID, o.Generation = old.UID, old.Generation
	switch spec := o.Spec.(type) {
	case *corev1.Service:
		if was, ok := old.Spec.(*corev1.Service); ok {
			spec = spec.DeepCopy()
			if spec.Spec.ClusterIP == "" && spec.Spec.Type != corev1.ServiceTypeExternalName {
				spec.Spec.ClusterIP, spec.Spec.ClusterIPs = was.Spec.ClusterIP, was.Spec.ClusterIPs
			}
			if len(spec.Status.LoadBalancer.Ingress) == 0 {
				spec.Status = was.Status
			}
			o.Spec = spec
		}
	case *corev1.Pod:
		switch was := old.Spec.(type) {
		case *corev1.Pod:
			spec = spec.DeepCopy()
			if spec.Status.PodIP == "" {
				spec.Status = was.Status
			}
			spec.Spec.NodeName = cmp.Or(spec.Spec.NodeName, was.Spec.NodeName)
			o.Spec = spec
		case *kube.PodFacts:
			f := kube.PodFactsOf(spec, o.Labels)
			if len(f.Addresses) == 0 {
				f.Addresses, f.Ready = was.Addresses, was.Ready
			}
			f.NodeName = cmp.Or(f.NodeName, was.NodeName)
			o.Spec = f
		}
	}
	return &o
}

// Names returns the objects of a kind, as NAME.NAMESPACE, for messages about an object that does not exist.
func (i *Inspection) Names(kind *kinds.Kind) []string {
	var list []string
	for k := range maps.Keys(i.world.AllObjects()) {
		if k.Kind == kind {
			list = append(list, strings.TrimSuffix(k.Name+"."+k.Namespace, "."))
		}
	}
	slices.Sort(list)
	return list
}
