package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Ask asks an API server whether an identity may list the Secrets of its namespace.
type Ask func(context.Context, identity.ID) (bool, error)

// AskServer returns the Ask of an API server. Each question is a SubjectAccessReview.
func AskServer(server *rest.Config) (Ask, error) {
	server = rest.CopyConfig(server)
	server.QPS, server.Burst, server.RateLimiter = -1, 0, nil // reviews have a bound of their own
	client, err := dynamic.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	reviews := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"))
	return func(ctx context.Context, id identity.ID) (bool, error) { return mayListSecrets(ctx, reviews, id) }, nil
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
