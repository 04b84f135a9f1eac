package envoyfilter

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// patch is one of the patches that are applied to a resource.
type patch struct {
	feature.Patch
	*compiledPatch
}

// op returns the operation of the patch.
func (p patch) op() networkingv1alpha3.EnvoyFilter_Patch_Operation {
	return p.GetPatch().GetOperation()
}

// outcome holds the results of a list of patches, by index.
type outcome struct {
	applied map[int]bool
	failed  map[int]error
}

func newOutcome() outcome { return outcome{map[int]bool{}, map[int]error{}} }

// set records that a patch was applied, or why it cannot be.
func (o outcome) set(i int, err error) {
	if err != nil {
		o.failed[i] = err
	} else {
		o.applied[i] = true
	}
}

// Apply applies patches to a message and returns the result. It does not change the message.
func (f *filters) Apply(patches []feature.Patch, t feature.PatchTarget, m proto.Message) (proto.Message, []feature.PatchNote) {
	list := lists.Map(patches, func(p feature.Patch) patch { return patch{p, &f.of(p.Object).patches[p.Index]} })
	if m == nil {
		return proto.Clone(list[0].value), []feature.PatchNote{{Patch: patches[0]}}
	}
	out := newOutcome()
	made := run(list, t, proto.Clone(m), out)
	if len(out.applied)+len(out.failed) > 0 && made != nil {
		if was := valid(m); refused(made, was) != nil {
			made = withoutBad(list, t, m, was, out)
		}
	}
	var notes []feature.PatchNote
	for i, p := range list {
		switch err := out.failed[i]; {
		case err != nil:
			notes = append(notes, feature.PatchNote{Patch: p.Patch, Resource: t.Name, Reason: err.Error()})
		case out.applied[i]:
			notes = append(notes, feature.PatchNote{Patch: p.Patch, Resource: t.Name})
		}
	}
	return made, notes
}

// refused returns why Envoy would reject a message, or nil if it would reject the unpatched message for the same
// reason.
func refused(m proto.Message, was error) error {
	err := valid(m)
	if err != nil && was != nil && err.Error() == was.Error() {
		return nil
	}
	return err
}

// withoutBad applies the patches with which the result is accepted, and records why the others fail. It bisects, so
// that a few bad patches among many cost little.
func withoutBad(list []patch, t feature.PatchTarget, m proto.Message, was error, out outcome) proto.Message {
	var good []patch
	result := m
	var add func(from, to int)
	add = func(from, to int) {
		made := run(slices.Concat(good, list[from:to]), t, proto.Clone(m), newOutcome())
		if made == nil || refused(made, was) == nil {
			good, result = append(good, list[from:to]...), made
			return
		}
		if middle := (from + to) / 2; middle > from {
			add(from, middle)
			add(middle, to)
			return
		}
		out.failed[from] = fmt.Errorf("Envoy would reject the result: %w", refused(made, was))
	}
	add(0, len(list))
	return result
}

// run applies patches to a message, and changes it. Patches that fail leave it as it is. The result is nil if a patch
// removes it.
func run(list []patch, t feature.PatchTarget, m proto.Message, out outcome) proto.Message {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		for i, p := range list {
			switch {
			case !p.matchesService(t, m):
			case p.op() == remove:
				out.set(i, nil)
				return nil
			default:
				out.set(i, p.mergeIntoCluster(m))
			}
		}
	case *listenerv3.Listener:
		l := listener{list, t, m, out}
		if !l.run() {
			return nil
		}
	case *routev3.RouteConfiguration:
		name := m.Name
		for i, p := range list {
			out.set(i, p.mergeInto(m))
		}
		m.Name = name
	case *routev3.VirtualHost:
		r := routes{list, out}
		if !r.host(m) {
			return nil
		}
	}
	return m
}

// mergeInto merges the value of a patch into a message. Callers restore the names of resources, because others refer to
// them.
func (p patch) mergeInto(m proto.Message) error {
	if !merges(p.op()) {
		return nil
	}
	return change(m, func(m proto.Message) error {
		return mergeMessages(m.ProtoReflect(), p.value.ProtoReflect(), p.op() == mergeLists)
	})
}
