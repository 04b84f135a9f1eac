package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// errNotFound is the error of a kind that exists and whose lists the API server answers with 404.
var errNotFound = errors.New("it answers 404 (not found), although there is such a kind")

// confirmAbsent reports whether discovery says that the API server serves none of the versions of the kind that this
// server reads. If defined is true, a definition of the kind exists, so the API server must have the group.
func (f *feed) confirmAbsent(ctx context.Context, defined bool) (bool, error) {
	if f.core != nil {
		return false, nil
	}
	versions, err := f.groupVersions(ctx)
	if err != nil || versions == nil {
		return err == nil && !defined, err
	}
	for _, version := range f.versions {
		if !slices.Contains(versions, version) {
			continue
		}
		names, err := f.resources(ctx, version)
		if err != nil || names == nil || slices.Contains(names, f.plural) {
			return false, err
		}
	}
	return true, nil
}

// groupVersions returns the versions of the kind's group, or nil if the API server does not have the group.
func (f *feed) groupVersions(ctx context.Context) ([]string, error) {
	var group metav1.APIGroup
	found, err := f.discover(ctx, "/apis/"+f.group, &group)
	if !found || err != nil {
		return nil, err
	}
	versions := lists.Map(group.Versions, func(v metav1.GroupVersionForDiscovery) string { return v.Version })
	return versions, nil
}

// resources returns the plural names of the kinds in a version of the kind's group, or nil if the API server does not
// have the version.
func (f *feed) resources(ctx context.Context, version string) ([]string, error) {
	var list metav1.APIResourceList
	found, err := f.discover(ctx, "/apis/"+f.group+"/"+version, &list)
	if !found || err != nil {
		return nil, err
	}
	names := lists.Map(list.APIResources, func(r metav1.APIResource) string { return r.Name })
	return names, nil
}

// discover decodes the JSON document at a path. It returns false if there is none.
func (f *feed) discover(ctx context.Context, path string, into any) (bool, error) {
	client, err := f.client(f.versions[0])
	if err != nil {
		return false, err
	}
	data, err := client.Get().AbsPath(path).Timeout(f.source.timeouts.answer).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("decode %s: %w", path, err)
	}
	return true, nil
}
