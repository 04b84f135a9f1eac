package login

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// page is a page that wants a login. The workload answers with headers that the query names.
const page = "http://" + closed + "/orders?header=x-auth-request-user&header=x-auth-request-email&header=x-auth-request-groups"

// TestLogin logs in, and tries what has to be refused.
func TestLogin(t *testing.T) {
	m := start(t)
	user := m.browser()
	// The workload must not believe what the browser says.
	user.header.Set("X-Auth-Request-Email", "boss@example.com")
	user.header.Set("X-Auth-Request-User", "0")
	if !user.sentToLogin(page) {
		t.Fatal("a browser without a session is not sent to the identity provider")
	}
	answer, last, hosts := user.visit(page)
	if want := []string{closed, identity, closed, closed}; !slices.Equal(hosts, want) {
		t.Errorf("a login leads to %v, want %v", hosts, want)
	}
	if last.String() != page || answer.Name != "web" || answer.Path != "/orders" {
		t.Errorf("a login ends at %s: %+v", last, answer)
	}
	want := map[string]string{"x-auth-request-user": "1234567890", "x-auth-request-email": "jane.doe@example.com",
		"x-auth-request-groups": "engineering,design"}
	if !maps.Equal(answer.Headers, want) {
		t.Errorf("the workload has %v, want %v", answer.Headers, want)
	}
	if status := user.status(page); status != http.StatusOK {
		t.Errorf("with a session: %d", status)
	}

	t.Run("renews the session", func(t *testing.T) {
		before := user.session()
		suite.Eventually(t, "an old session is renewed", func() bool {
			if status := user.status(page); status != http.StatusOK {
				t.Fatalf("with an old session: %d", status)
			}
			after := user.session()
			return before != nil && after != nil && after.Value != before.Value
		})
	})
	t.Run("refuses wrong cookies", func(t *testing.T) {
		good := user.session().Value
		parts := strings.Split(good, "|")
		for name, value := range map[string]string{
			"of nothing": "", "of another user": "amFuZQ==|" + strings.Join(parts[1:], "|"), "torn": good[:len(good)-8],
			"with another time": parts[0] + "|4102444800|" + parts[len(parts)-1],
		} {
			thief := m.browser()
			thief.client.Jar.SetCookies(&url.URL{Scheme: "http", Host: closed, Path: "/"}, []*http.Cookie{{Name: "_oauth2_proxy", Value: value}})
			if !thief.sentToLogin(page) {
				t.Errorf("a cookie %s is not refused", name)
			}
		}
	})
	t.Run("passes no page of oauth2-proxy on", func(t *testing.T) {
		for _, path := range []string{"/ping", "/ready", "/robots.txt", "/oauth2/sign_in", "/oauth2/static/css/bulma.min.css",
			"//ping", "/%70ing", "/ping?x", "/x/../ping"} {
			stranger := m.browser()
			resp := stranger.get("http://" + closed + path)
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden && resp.StatusCode/100 != 3 {
				t.Errorf("%s without a session: %s", path, resp.Status)
			}
		}
	})
	t.Run("tells programs by a status", func(t *testing.T) {
		program := m.browser()
		program.header.Set("Accept", "application/json")
		resp := program.get(page)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("a program is told %s, %v", resp.Status, resp.Header)
		}
	})
	t.Run("asks only for hosts of the policy", func(t *testing.T) {
		if status := m.browser().status("http://" + open + "/"); status != http.StatusOK {
			t.Errorf("a host without a login: %d", status)
		}
	})
	t.Run("ends the session", func(t *testing.T) {
		if status := user.status("http://" + closed + "/oauth2/sign_out"); status != http.StatusFound {
			t.Errorf("a logout: %d", status)
		}
		if user.session() != nil || !user.sentToLogin(page) {
			t.Error("the session goes on after a logout")
		}
	})
	m.Fine(t)
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("oauth2-proxy", binaries.Version("oauth2-proxy"),
			"a login at a gateway by a provider envoyExtAuthzHttp and a policy of action CUSTOM", "works"))
	}
}

// TestWithoutTheProxy ends oauth2-proxy while a browser has a session.
func TestWithoutTheProxy(t *testing.T) {
	m := start(t)
	user := m.browser()
	user.visit(page)
	m.proxy.Kill()
	for name, b := range map[string]*browser{"with": user, "without": m.browser()} {
		if status := b.status(page); status != http.StatusForbidden {
			t.Errorf("%s a session: %d", name, status)
		}
	}
	if status := user.status("http://" + open + "/"); status != http.StatusOK {
		t.Errorf("a host without a login: %d", status)
	}
	m.startProxy()
	if status := user.status(page); status != http.StatusOK {
		t.Errorf("with a session, after oauth2-proxy has started again: %d", status)
	}
	m.Fine(t)
}
