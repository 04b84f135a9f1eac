package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Ask asks an API server whether an identity may list the Secrets of its namespace.
type Ask func(context.Context, identity.ID) (bool, error)

const reviewPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

// AskServer returns the Ask of an API server. Each call makes one SubjectAccessReview.
func AskServer(server *rest.Config) (Ask, error) {
	client, err := apiserver.New(server)
	return func(ctx context.Context, id identity.ID) (bool, error) {
		r := authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + id.Namespace + ":" + id.ServiceAccount,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + id.Namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Version: "v1", Namespace: id.Namespace},
			},
		}
		if err := client.Review(ctx, reviewPath, &r); err != nil {
			return false, fmt.Errorf("failed to create a SubjectAccessReview: %w", err)
		}
		return r.Status.Allowed && !r.Status.Denied, nil
	}, err
}
