package patches

import (
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// Operations returns the operations that have an effect on a kind of patched objects, or none if such objects are not
// patched.
func Operations(to networkingv1alpha3.EnvoyFilter_ApplyTo) []networkingv1alpha3.EnvoyFilter_Patch_Operation {
	const (
		merge        = networkingv1alpha3.EnvoyFilter_Patch_MERGE
		mergeLists   = networkingv1alpha3.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
		add          = networkingv1alpha3.EnvoyFilter_Patch_ADD
		remove       = networkingv1alpha3.EnvoyFilter_Patch_REMOVE
		insertBefore = networkingv1alpha3.EnvoyFilter_Patch_INSERT_BEFORE
		insertAfter  = networkingv1alpha3.EnvoyFilter_Patch_INSERT_AFTER
		insertFirst  = networkingv1alpha3.EnvoyFilter_Patch_INSERT_FIRST
		replace      = networkingv1alpha3.EnvoyFilter_Patch_REPLACE
	)
	switch to {
	case networkingv1alpha3.EnvoyFilter_NETWORK_FILTER,
		networkingv1alpha3.EnvoyFilter_HTTP_FILTER, networkingv1alpha3.EnvoyFilter_LISTENER_FILTER:
		return []networkingv1alpha3.EnvoyFilter_Patch_Operation{merge, mergeLists, add, remove, insertBefore, insertAfter, insertFirst, replace}
	case networkingv1alpha3.EnvoyFilter_HTTP_ROUTE:
		return []networkingv1alpha3.EnvoyFilter_Patch_Operation{merge, mergeLists, add, remove, insertBefore, insertAfter, insertFirst}
	case networkingv1alpha3.EnvoyFilter_LISTENER, networkingv1alpha3.EnvoyFilter_FILTER_CHAIN,
		networkingv1alpha3.EnvoyFilter_VIRTUAL_HOST, networkingv1alpha3.EnvoyFilter_CLUSTER:
		return []networkingv1alpha3.EnvoyFilter_Patch_Operation{merge, mergeLists, add, remove}
	case networkingv1alpha3.EnvoyFilter_ROUTE_CONFIGURATION:
		return []networkingv1alpha3.EnvoyFilter_Patch_Operation{merge, mergeLists}
	case networkingv1alpha3.EnvoyFilter_EXTENSION_CONFIG:
		return []networkingv1alpha3.EnvoyFilter_Patch_Operation{add}
	}
	return nil
}
