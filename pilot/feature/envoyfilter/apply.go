package envoyfilter

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// patch is one of the patches that are applied to a resource.
type patch struct {
	feature.Patch
	*compiledPatch
}

// op returns what the patch does with its value.
func (p patch) op() networkingv1alpha3.EnvoyFilter_Patch_Operation { return p.GetPatch().GetOperation() }

// failures are why patches cannot be applied, by their place in a list.
type failures map[int]error

// apply applies patches to a message, which it does not change, and returns the result.
func (f *filters) apply(patches []feature.Patch, t feature.PatchTarget, m proto.Message) (proto.Message, []diag.Diagnostic) {
	list := make([]patch, len(patches))
	for i, p := range patches {
		list[i] = patch{p, &f.of(p.Object).patches[p.Index]}
	}
	if m == nil {
		made := proto.Clone(list[0].value)
		if err := valid(made); err != nil {
			return nil, []diag.Diagnostic{list[0].finding(t, err)}
		}
		return made, nil
	}
	failed := failures{}
	made := run(list, t, proto.Clone(m), failed)
	if made != nil && valid(made) != nil && valid(m) == nil {
		made = withoutBad(list, t, m, failed)
	}
	var found []diag.Diagnostic
	for i, p := range list {
		if err := failed[i]; err != nil {
			found = append(found, p.finding(t, err))
		}
	}
	return made, found
}

// withoutBad applies those patches with which the result is valid, one after the other. It adds why the others fail.
func withoutBad(list []patch, t feature.PatchTarget, m proto.Message, failed failures) proto.Message {
	var good []patch
	result := m
	for i, p := range list {
		made := run(append(good[:len(good):len(good)], p), t, proto.Clone(m), failures{})
		if made != nil {
			if err := valid(made); err != nil {
				failed[i] = fmt.Errorf("Envoy would refuse the result: %w", err)
				continue
			}
		}
		good, result = append(good, p), made
	}
	return result
}

// finding returns that a patch is left out of a resource.
func (p patch) finding(t feature.PatchTarget, err error) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: diag.Error, Code: "PatchLeftOut", Object: p.Object.String(), Field: fmt.Sprintf("spec.configPatches[%d]", p.Index),
		Message: err.Error(), Fix: "correct the patch, or match fewer resources",
	}
	if t.Name != "" {
		d.Message = t.Name + ": " + d.Message
	}
	return d.At(p.Object.Position)
}

// run applies patches to a message, and changes it. Those that fail leave it as it is. The result is nil if a patch
// removes it.
func run(list []patch, t feature.PatchTarget, m proto.Message, failed failures) proto.Message {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		for i, p := range list {
			switch {
			case !p.matchesService(t, m):
			case p.op() == remove:
				return nil
			default:
				failed.set(i, p.mergeIntoCluster(m))
			}
		}
	case *listenerv3.Listener:
		l := listener{list, t, m, failed}
		if !l.run() {
			return nil
		}
	case *routev3.RouteConfiguration:
		name := m.Name
		for i, p := range list {
			failed.set(i, p.mergeInto(m))
		}
		m.Name = name
	case *routev3.VirtualHost:
		r := routes{list, failed}
		if !r.host(m) {
			return nil
		}
	}
	return m
}

func (f failures) set(i int, err error) {
	if err != nil {
		f[i] = err
	}
}

// mergeInto merges the value of a patch into a message. The callers keep the names of resources: others refer to them.
func (p patch) mergeInto(m proto.Message) error {
	if !merges(p.op()) {
		return nil
	}
	return mergeMessages(m.ProtoReflect(), p.value.ProtoReflect(), p.op() == mergeLists)
}
