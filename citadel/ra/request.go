package ra

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/citadel/ca"
)

// Timing of a CertificateSigningRequest.
const (
	signTimeout   = 60 * time.Second // after that the caller is told to try again
	deletedWithin = 10 * time.Second
	watchRetry    = time.Second // wait after a watch has failed
)

// request lets a signer sign a certificate request, and returns the certificate and its issuers as PEM.
func (a *Authority) request(ctx context.Context, signer string, csr []byte, ttl time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	name := "csr-istiod-" + strings.ToLower(rand.Text())
	client := a.o.Client.Resource(certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"))
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"request": base64.StdEncoding.EncodeToString(csr), "signerName": signer, "expirationSeconds": int64(ttl / time.Second),
			"usages": []any{string(certificatesv1.UsageDigitalSignature), string(certificatesv1.UsageKeyEncipherment),
				string(certificatesv1.UsageServerAuth), string(certificatesv1.UsageClientAuth)},
		},
	}}
	o, err := client.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate request cannot be made: %w", ca.ErrUnavailable, err)
	}
	defer a.delete(ctx, client, name)
	if err := approve(ctx, client, o, time.Now()); err != nil {
		return nil, fmt.Errorf("%w: the certificate request cannot be approved: %w", ca.ErrUnavailable, err)
	}
	text, err := wait(ctx, client, name)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: signer %s has not signed in time", ca.ErrUnavailable, signer)
	}
	return text, err
}

// approve approves a request that this process has just created.
func approve(ctx context.Context, client dynamic.ResourceInterface, o *unstructured.Unstructured, now time.Time) error {
	o = o.DeepCopy()
	condition := map[string]any{
		"type": string(certificatesv1.CertificateApproved), "status": "True", "reason": "IstiodAuthenticatedCaller",
		"message": "the caller was authenticated, and asks for its own identity", "lastUpdateTime": now.UTC().Format(time.RFC3339),
	}
	if err := unstructured.SetNestedSlice(o.Object, []any{condition}, "status", "conditions"); err != nil {
		return err
	}
	_, err := client.Update(ctx, o, metav1.UpdateOptions{}, "approval")
	return err
}

// wait waits until a request is signed or refused, or ctx ends.
func wait(ctx context.Context, client dynamic.ResourceInterface, name string) ([]byte, error) {
	for {
		text, done, err := follow(ctx, client, name)
		if done {
			return text, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(watchRetry):
		}
	}
}

// follow reads a request and watches it until the watch ends. It reports whether the request is decided.
func follow(ctx context.Context, client dynamic.ResourceInterface, name string) (text []byte, done bool, err error) {
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, fmt.Errorf("%w: the certificate request was deleted before it was signed", ca.ErrUnavailable)
	case err != nil:
		return nil, false, err
	}
	if text, done, err = decided(o); done {
		return text, done, err
	}
	w, err := client.Watch(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: o.GetResourceVersion()})
	if err != nil {
		return nil, false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case e := <-w.ResultChan():
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok { // the watch has ended or failed
				return nil, false, nil
			}
			if text, done, err = decided(o); done {
				return text, done, err
			}
		}
	}
}

// decided returns the certificate of a request, or the reason why there will be none.
func decided(o *unstructured.Unstructured) (text []byte, done bool, err error) {
	var r certificatesv1.CertificateSigningRequest
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &r); err != nil {
		return nil, true, fmt.Errorf("%w: %w", ca.ErrInternal, err)
	}
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return nil, true, fmt.Errorf("%w: the certificate request was %s: %s", ca.ErrInternal, c.Type, c.Message)
		}
	}
	return r.Status.Certificate, len(r.Status.Certificate) > 0, nil
}

// delete deletes a request, even if the caller is gone.
func (a *Authority) delete(ctx context.Context, client dynamic.ResourceInterface, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletedWithin)
	defer cancel()
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		a.o.Logger.Warn("failed to delete CertificateSigningRequest", "name", name, "err", err)
	}
}
