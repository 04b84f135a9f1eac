package faults

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Request is a recorded request.
type Request struct {
	Time time.Time
	// Verb is the verb of RBAC: get, list, watch, create, update, patch, delete, deletecollection. For a path without a
	// resource it is the method in lower case.
	Verb string
	// Initial selects watches that begin with the existing objects, which informers use instead of a list.
	Initial bool
	// Group is empty for the core group. Resource may have a subresource, as in pods/status. It is empty for paths without
	// a resource, such as discovery and /readyz.
	Group     string
	Resource  string
	Namespace string
	Name      string
	Path      string
	Query     string
	// Accept is the header with the encodings that the client accepts.
	Accept    string
	UserAgent string
	// Identity is the subject of a ServiceAccount's token, system:serviceaccount:NAMESPACE:NAME. It is empty for others.
	Identity string
	// Code is the status of the answer, or 0 until there is one.
	Code int
}

// Writes reports whether the request changes something in the cluster. Questions that are sent as POST, such as access
// and token reviews, change nothing.
func (r Request) Writes() bool {
	switch r.Verb {
	case "update", "patch", "delete", "deletecollection":
		return true
	case "create":
		return r.Group != "authorization.k8s.io" && r.Group != "authentication.k8s.io" && r.Resource != "serviceaccounts/token"
	default:
		return false
	}
}

// parse reads a request's parts from its path: /api/VERSION/... for the core group, /apis/GROUP/VERSION/... for others.
func parse(r *http.Request) Request {
	q := Request{
		Time: time.Now(), Verb: strings.ToLower(r.Method), Path: r.URL.Path, Query: r.URL.RawQuery,
		Accept: r.Header.Get("Accept"), UserAgent: r.UserAgent(), Identity: identity(r.Header.Get("Authorization")),
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		q.Group, parts = parts[1], parts[3:]
	default:
		return q
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		q.Namespace = parts[1]
		// A namespace is an object too: /namespaces/NAME, with its subresources.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Resource += "/" + strings.Join(parts[2:], "/")
	}
	query := r.URL.Query()
	on := func(key string) bool { return query.Get(key) == "true" || query.Get(key) == "1" }
	q.Verb = verb(r.Method, q.Name != "", on("watch"))
	q.Initial = q.Verb == "watch" && on("sendInitialEvents")
	return q
}

func verb(method string, one, watch bool) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watch:
			return "watch"
		case one:
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if !one {
			return "deletecollection"
		}
	}
	return strings.ToLower(method)
}

// identity returns the subject of a token. kube-apiserver verifies the token.
func identity(authorization string) string {
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Subject
}
