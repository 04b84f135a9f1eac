package world

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The number of policies of a mesh with policies. Each namespace has the same number.
const (
	AuthorizationPolicies  = 200
	RequestAuthentications = 50
)

var (
	authorizationPolicies  = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "authorizationpolicies"}
	requestAuthentications = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "requestauthentications"}
	peerAuthentications    = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}
)

// AuthorizationPolicyResource returns the resource of AuthorizationPolicies.
func AuthorizationPolicyResource() schema.GroupVersionResource { return authorizationPolicies }

// AuthorizationPolicy returns AuthorizationPolicy i. The first policies select all workloads of their namespace, and
// each other policy selects one service. The mark is a path that it allows.
func (w World) AuthorizationPolicy(i int, mark string) *unstructured.Unstructured {
	spec := allow(mark)
	if i >= w.Namespaces {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": Name(i % w.Services)}}
	}
	return security("AuthorizationPolicy", "policy-"+strconv.Itoa(i), w.Namespace(i%w.Services), spec)
}

// RootPolicy returns the AuthorizationPolicy of the root namespace.
func RootPolicy(mark string) *unstructured.Unstructured {
	return security("AuthorizationPolicy", "everywhere", RootNamespace, allow(mark))
}

// allow returns the spec of a policy that allows the usual requests of a mesh and the path of the mark.
func allow(mark string) map[string]any {
	return map[string]any{"rules": []any{
		map[string]any{
			"from": []any{
				map[string]any{"source": map[string]any{"principals": []any{"cluster.local/ns/ns-0/sa/*", "cluster.local/ns/ns-1/sa/svc-1"}}},
			},
			"to": []any{map[string]any{"operation": map[string]any{"methods": []any{"GET", "POST"}, "paths": []any{"/api/*", "/" + mark}}}},
		},
		map[string]any{
			"from": []any{map[string]any{"source": map[string]any{"namespaces": []any{"ns-2"}}}},
			"when": []any{map[string]any{"key": "request.headers[x-tenant]", "values": []any{"a", "b*"}}},
		},
	}}
}

func requestAuthentication(w World, i int) *unstructured.Unstructured {
	return security("RequestAuthentication", "tokens-"+strconv.Itoa(i), w.Namespace(i%w.Services), map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": Name(i % w.Services)}},
		"jwtRules": []any{map[string]any{"issuer": "issuer.example", "jwks": `{"keys":[]}`}},
	})
}

func security(kind, name, namespace string, spec map[string]any) *unstructured.Unstructured {
	o := istio(kind, name, namespace, spec)
	o.SetAPIVersion("security.istio.io/v1")
	return o
}

// SeedPolicies adds the policies, and mutual TLS for the mesh. It writes as many objects in parallel as there are
// workers.
func (c *Clients) SeedPolicies(ctx context.Context, w World, workers int) error {
	strict := map[string]any{"mtls": map[string]any{"mode": "STRICT"}}
	type seed struct {
		of schema.GroupVersionResource
		*unstructured.Unstructured
	}
	all := []seed{{peerAuthentications, security("PeerAuthentication", "default", RootNamespace, strict)},
		{authorizationPolicies, RootPolicy("seed")}}
	for i := range AuthorizationPolicies {
		all = append(all, seed{authorizationPolicies, w.AuthorizationPolicy(i, "seed")})
	}
	for i := range RequestAuthentications {
		all = append(all, seed{requestAuthentications, requestAuthentication(w, i)})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, o := range all {
		g.Go(func() error {
			_, err := c.Dynamic.Resource(o.of).Namespace(o.GetNamespace()).Create(ctx, o.Unstructured, metav1.CreateOptions{})
			if err := orExists(err); err != nil {
				return fmt.Errorf("seed %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// RemovePolicies deletes them.
func (c *Clients) RemovePolicies(ctx context.Context, w World) error {
	for _, of := range []schema.GroupVersionResource{authorizationPolicies, requestAuthentications, peerAuthentications} {
		namespaces := []string{RootNamespace}
		for n := range min(w.Namespaces, w.Services) {
			namespaces = append(namespaces, w.Namespace(n))
		}
		for _, ns := range namespaces {
			if err := c.Dynamic.Resource(of).Namespace(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				return fmt.Errorf("remove policies: %w", err)
			}
		}
	}
	return nil
}
