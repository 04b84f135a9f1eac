package cluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Snapshot is the content of a cluster at one time.
type Snapshot struct {
	values    map[string][]byte // by key of etcd
	revisions map[string]string // by key of etcd
}

// keyValue is a key of etcd in its JSON API.
type keyValue struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision string `json:"mod_revision"`
}

// operation is one operation of a transaction in etcd's JSON API. One field is set.
type operation struct {
	Put    *keyValue `json:"request_put,omitempty"`
	Delete *keyValue `json:"request_delete_range,omitempty"`
}

// contents returns the stored keys of kube-apiserver, with or without the values.
func (c *Cluster) contents(ctx context.Context, keysOnly bool) ([]keyValue, error) {
	var answer struct {
		KVs []keyValue `json:"kvs"`
	}
	question := map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0"), "keys_only": keysOnly}
	err := c.askEtcd(ctx, "/v3/kv/range", question, &answer)
	return answer.KVs, err
}

// Snapshot returns the content of the cluster.
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	list, err := c.contents(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	s := &Snapshot{values: map[string][]byte{}, revisions: map[string]string{}}
	for _, kv := range list {
		s.values[string(kv.Key)], s.revisions[string(kv.Key)] = kv.Value, kv.Revision
	}
	return s, nil
}

// Restore restores the content of the cluster, and returns once kube-apiserver serves it. It takes a small part of the
// time of a start.
func (c *Cluster) Restore(ctx context.Context, s *Snapshot) error {
	list, err := c.contents(ctx, true)
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	var operations []operation
	put := func(key string) {
		operations = append(operations, operation{Put: &keyValue{Key: []byte(key), Value: s.values[key]}})
	}
	present := map[string]bool{}
	for _, kv := range list {
		key := string(kv.Key)
		present[key] = true
		if _, known := s.values[key]; !known {
			operations = append(operations, operation{Delete: &keyValue{Key: kv.Key}})
		} else if kv.Revision != s.revisions[key] {
			put(key)
		}
	}
	for key := range s.values {
		if !present[key] {
			put(key)
		}
	}
	const most = 100 // etcd refuses more than 128 operations
	for some := range slices.Chunk(operations, most) {
		if err := c.askEtcd(ctx, "/v3/kv/txn", map[string]any{"success": some}, nil); err != nil {
			return fmt.Errorf("restore a snapshot: %w", err)
		}
	}
	c.mapper.Reset()
	if err := c.upToDate(ctx); err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	// Each written key has a new revision.
	if list, err = c.contents(ctx, true); err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	for _, kv := range list {
		s.revisions[string(kv.Key)] = kv.Revision
	}
	return nil
}

// upToDate waits until the caches of kube-apiserver have all of etcd's content. A list without a version is answered
// when they do.
func (c *Cluster) upToDate(ctx context.Context) error {
	lists, err := c.typed.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "watch") {
				all.Go(func() error {
					_, err := c.dynamic.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{Limit: 1})
					if apierrors.IsNotFound(err) { // its definition was not in the snapshot and is being deleted
						return nil
					}
					return err
				})
			}
		}
	}
	return all.Wait()
}
