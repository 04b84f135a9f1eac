package envoyfilter

import (
	"fmt"
	"iter"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// filter is a filter of any sort.
type filter interface {
	proto.Message
	GetName() string
	GetTypedConfig() *anypb.Any
}

// placeFunc returns where in a list a filter of a class is added.
type placeFunc[T filter] func(networkingv1alpha3.EnvoyFilter_Patch_FilterClass, []T) int

// edit applies patches to a list of filters: it adds, inserts and replaces filters, and then merges into some and
// removes others. applies reports whether a patch is for the list.
func edit[T filter](list []T, patches iter.Seq2[int, patch], out outcome, applies func(patch) bool, place placeFunc[T]) []T {
	cloned := func(p patch) T { return proto.Clone(p.value).(T) }
	for i, p := range patches {
		if !applies(p) {
			continue
		}
		name := p.filterName()
		at := slices.IndexFunc(list, func(f T) bool { return f.GetName() == name })
		switch p.op() {
		case add:
			at = place(p.GetPatch().GetFilterClass(), list)
		case insertFirst: // whether or not the filter is there
			at = 0
		case insertBefore:
			if name == "" {
				at = 0
			}
		case insertAfter:
			if name == "" {
				at = len(list)
			} else if at >= 0 {
				at++
			}
		case replace:
			if at >= 0 {
				list[at] = cloned(p)
				out.set(i, nil)
			}
			continue
		default:
			continue
		}
		if at >= 0 {
			list = slices.Insert(list, at, cloned(p))
			out.set(i, nil)
		}
	}
	for i, p := range patches {
		if !applies(p) || !merges(p.op()) && p.op() != remove {
			continue
		}
		name := p.filterName()
		if p.op() == remove {
			before := len(list)
			if list = slices.DeleteFunc(list, func(f T) bool { return name == "" || f.GetName() == name }); len(list) < before {
				out.set(i, nil)
			}
			continue
		}
		for _, f := range list {
			if name == "" || f.GetName() == name {
				if applies, err := p.mergeFilter(f); applies {
					out.set(i, err)
				}
			}
		}
	}
	return list
}

// mergeFilter merges the value of a patch into a filter. Configurations of different types are not merged. It reports
// whether the value is for the filter.
func (p patch) mergeFilter(f filter) (applies bool, err error) {
	if from := p.value.(filter).GetTypedConfig(); from != nil && f.GetTypedConfig() != nil && from.TypeUrl != f.GetTypedConfig().TypeUrl {
		if f.GetName() != p.value.(filter).GetName() && p.value.(filter).GetName() != "" {
			return false, nil // without a match by name, the patch is for filters of the value's type
		}
		return true, fmt.Errorf("%s has a configuration of type %s, into which none of %s can be merged: use REPLACE", f.GetName(),
			f.GetTypedConfig().TypeUrl, from.TypeUrl)
	}
	return true, p.mergeInto(f)
}

// last returns the index after all listener filters.
func last(_ networkingv1alpha3.EnvoyFilter_Patch_FilterClass, list []*listenerv3.ListenerFilter) int {
	return len(list)
}

// networkPlace returns the index at which a network filter of a class is added: before the filter that ends the chain.
func networkPlace(_ networkingv1alpha3.EnvoyFilter_Patch_FilterClass, list []*listenerv3.Filter) int {
	if n := len(list); n > 0 && isTerminal(list[n-1]) {
		return n - 1
	}
	return len(list)
}

// httpPlace returns the index at which an HTTP filter of a class is added: after the server's filters of the class, or
// else before the router, which must be the last.
func httpPlace(class networkingv1alpha3.EnvoyFilter_Patch_FilterClass, list []*hcmv3.HttpFilter) int {
	after := func(names ...string) int {
		at := 0
		for i, f := range list {
			if slices.Contains(names, f.Name) {
				at = i + 1
			}
		}
		return at
	}
	switch class {
	case networkingv1alpha3.EnvoyFilter_Patch_AUTHN:
		return after("istio.metadata_exchange", "envoy.filters.http.jwt_authn", "istio_authn")
	case networkingv1alpha3.EnvoyFilter_Patch_AUTHZ:
		return after("istio.metadata_exchange", "envoy.filters.http.jwt_authn", "istio_authn", "envoy.filters.http.rbac",
			"envoy.filters.http.ext_authz")
	}
	for i, f := range list {
		if f.Name == "istio.stats" && class == networkingv1alpha3.EnvoyFilter_Patch_STATS || f.GetTypedConfig().GetTypeUrl() == router {
			return i
		}
	}
	return len(list)
}
