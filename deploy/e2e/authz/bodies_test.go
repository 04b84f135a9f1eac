package authz

import (
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestBodies: an authorizer is sent as much of a body as its provider says, and what it answers reaches the server and
// the client by the provider's lists of headers alone.
func TestBodies(t *testing.T) {
	m := startMesh(t, suite.EnvoyVar, defaultTrust)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: m.Pod("client").Location.DialContext}}
	post := func(body string) (*http.Response, echo.Answer) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+echoService+"/ask?header=x-user&header=x-why&header=x-hidden", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "echo.a"
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := echo.Decode(resp) // it closes the body; without an answer it is empty
		return resp, answer
	}
	check := func(what string, resp *http.Response, status int, headers map[string]string) {
		t.Helper()
		if resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", what, resp.Status, status)
		}
		for name, want := range headers {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: the client gets %s %q, want %q", what, name, got, want)
			}
		}
	}
	m.apply(t, "echo", "part", policyOf("part", "", `action: CUSTOM, provider: {name: with-body}, rules: [{to: [{operation: {paths: ["/ask*"]}}]}]`))
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

	m.apply(t, "echo", "whole", policyOf("whole", "", `action: CUSTOM, provider: {name: whole-body}, rules: [{to: [{operation: {paths: ["/ask*"]}}]}]`))
	suite.Eventually(t, "a body of more bytes than may be is kept out", func() bool { // a connection to the listener of before may be left
		resp, _ := post("0123456789 and more")
		return resp.StatusCode == http.StatusRequestEntityTooLarge
	})
	resp, _ = post("0123456789")
	check("a body of the most bytes", resp, http.StatusOK, map[string]string{"x-authorizer": ""})
}
