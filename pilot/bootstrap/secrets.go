package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/authorize/access"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// secrets decides which Secrets and ConfigMaps of the cluster are read for what they hold for TLS: those that a proxy
// may have and has subscribed to, and that a Gateway or a DestinationRule names.
type secrets struct {
	server *Server

	mu     sync.Mutex
	demand []kinds.Key        // of proxies
	named  *ingest.References // by objects, when wanted was last found
	wanted []kinds.Key        // of the cluster
}

// demanded takes what proxies want. It does not wait.
func (s *secrets) demanded(keys []kinds.Key) {
	s.mu.Lock()
	s.demand, s.named = keys, nil
	s.mu.Unlock()
	s.update()
}

// update has the sources read what is wanted.
func (s *secrets) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := s.server.world.References()
	if named == s.named {
		return
	}
	s.named = named
	wanted := slices.DeleteFunc(slices.Clone(s.demand), func(k kinds.Key) bool { return !named.Has(k.Name) })
	if !slices.Equal(wanted, s.wanted) {
		s.wanted = wanted
		s.server.from.WantSecrets(wanted)
	}
}

// findings returns which objects name a Secret or a ConfigMap that the cluster does not have, in a namespace where a
// proxy wants it.
func (s *secrets) findings() (list []diag.Diagnostic) {
	missing := s.server.from.MissingSecrets()
	if len(missing) == 0 {
		return nil
	}
	namespaces := map[string]bool{}
	for k := range missing {
		namespaces[k.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		list = append(list, s.server.world.MissingCredentials(namespace, missing)...)
	}
	return list
}

// secretAccess returns what asks the API server whether service accounts may list the Secrets of their namespace, and
// has it run.
func (s *Server) secretAccess() (xds.Access, error) {
	config := rest.CopyConfig(s.o.Client)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil // reviews have a bound of their own
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	reviews := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"))
	r := access.New(access.Options{Logger: s.o.Logger.With("scope", "authorization"), Ask: func(ctx context.Context, id identity.ID) (bool, error) {
		return mayListSecrets(ctx, reviews, id)
	}})
	s.components.background("reviews of access to secrets", r.Run)
	return r, nil
}

func mayListSecrets(ctx context.Context, reviews dynamic.ResourceInterface, id identity.ID) (bool, error) {
	in, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + id.Namespace + ":" + id.ServiceAccount,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + id.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Version: "v1", Namespace: id.Namespace},
		},
	})
	if err != nil {
		return false, err
	}
	u, err := reviews.Create(ctx, &unstructured.Unstructured{Object: in}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("the API server does not answer a SubjectAccessReview: %w", err)
	}
	var out authorizationv1.SubjectAccessReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out); err != nil {
		return false, err
	}
	return out.Status.Allowed && !out.Status.Denied, nil
}
