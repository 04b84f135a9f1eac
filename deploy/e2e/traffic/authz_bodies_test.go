package traffic

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBodies: an authorizer receives as much of a body as its provider allows. Only the headers in the provider's lists
// of its answer reach the server and the client.
func TestBodies(t *testing.T) {
	m := startAuthz(t, suite.EnvoyVar, defaultTrust)
	post := func(body string) (response, echo.Answer) {
		t.Helper()
		resp, err := m.do(request{
			from: "client", address: authzEchoService + ":80", method: http.MethodPost, path: "/ask?header=x-user&header=x-why&header=x-hidden",
			host: "echo.a", body: body,
		})
		must.Succeed(t, err)
		var answer echo.Answer
		_ = json.Unmarshal(resp.body, &answer) // An authorizer's response has no answer of the server.
		return resp, answer
	}
	check := func(what string, resp response, status int, headers map[string]string) {
		t.Helper()
		if resp.status != status {
			t.Errorf("%s: %d, want %d", what, resp.status, status)
		}
		for name, want := range headers {
			if got := resp.header.Get(name); got != want {
				t.Errorf("%s: the client gets %s %q, want %q", what, name, got, want)
			}
		}
	}
	m.apply(t, "echo", "part",
		policyOf("part", "", `action: CUSTOM, provider: {name: with-body}, rules: [{to: [{operation: {paths: ["/ask*"]}}]}]`))
	for _, body := range []string{"0123456789", "0123456789 and more"} {
		resp, answer := post(body)
		check("let in", resp, http.StatusOK, map[string]string{"x-authorizer": "http", "x-user": "", "x-why": "", "x-hidden": ""})
		for name, want := range map[string]string{"x-user": "told", "x-why": "", "x-hidden": ""} {
			if got := answer.Headers[name]; got != want {
				t.Errorf("the server gets %s %q, want %q", name, got, want)
			}
		}
	}
	resp, _ := post("012345678x")
	check("kept out", resp, http.StatusPaymentRequired, map[string]string{"x-why": "told", "x-user": "", "x-hidden": ""})

	m.apply(t, "echo", "whole",
		policyOf("whole", "", `action: CUSTOM, provider: {name: whole-body}, rules: [{to: [{operation: {paths: ["/ask*"]}}]}]`))
	suite.Eventually(t, "a body of more bytes than may be is kept out", func() bool { // the connection may belong to the old listener
		resp, _ := post("0123456789 and more")
		return resp.status == http.StatusRequestEntityTooLarge
	})
	resp, _ = post("0123456789")
	check("a body of the most bytes", resp, http.StatusOK, map[string]string{"x-authorizer": ""})
}
