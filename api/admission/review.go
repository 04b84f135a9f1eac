package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Reviewer answers a request. It must not keep the request, whose memory is released when the answer is written.
type Reviewer func(r *http.Request, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// Handler returns a handler of AdmissionReviews, v1 and v1beta1, that calls a Reviewer. The answer has the version and
// the UID of the request. refused is optional; it is called with the HTTP status of each request that is not reviewed.
func (g *Gate) Handler(review Reviewer, refused func(status int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := g.answer(w, r, review)
		if err == nil {
			return
		}
		var no *refusal
		if !errors.As(err, &no) {
			no = &refusal{http.StatusInternalServerError, err.Error()}
		}
		if refused != nil {
			refused(no.status)
		}
		w.Header().Set("Connection", "close") // the rest of the body is not read
		http.Error(w, no.message, no.status)
	})
}

func (g *Gate) answer(w http.ResponseWriter, r *http.Request, review Reviewer) error {
	from, gone := g.source(r)
	defer gone()
	body, release, err := g.read(w, r, from.bodies)
	if err != nil {
		return err
	}
	defer release()
	leave, err := g.enter(r.Context(), from, len(body))
	if err != nil {
		return err
	}
	defer leave()
	safe.GrowStack() // HTTP/2 starts a goroutine for each request
	in, err := decode(body)
	if err != nil {
		return err
	}
	answer := review(r, in.Request)
	answer.UID = in.Request.UID
	text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: answer})
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // a client that has gone needs no answer
	return nil
}

// kind is the kind of the request and of the answer.
const kind = "AdmissionReview"

// decode reads an AdmissionReview. v1beta1 has the fields of v1. The error is a refusal.
func decode(body []byte) (*admissionv1.AdmissionReview, error) {
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil {
		if strings.Contains(err.Error(), "exceeded max depth") {
			return nil, refuse(http.StatusBadRequest, "the body is too complex: its values are nested too deeply")
		}
		return nil, refuse(http.StatusBadRequest, "could not decode the body: %v", err)
	}
	const group = "admission.k8s.io/"
	switch {
	case in.Kind != kind, in.APIVersion != group+"v1" && in.APIVersion != group+"v1beta1":
		return nil, refuse(http.StatusBadRequest, "the body is %s %s, and not an %s of %sv1 or v1beta1", in.APIVersion, in.Kind, kind, group)
	case in.Request == nil:
		return nil, refuse(http.StatusBadRequest, "the %s has no request", kind)
	}
	return &in, nil
}

// Deny returns an answer that refuses a request with a message.
func Deny(message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
}

// Allow returns an answer that accepts a request.
func Allow() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }
