package gatewaytls

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// modes has hosts with all kinds of TLS settings on one port, distinguished by server name.
const modes = serversYAML + `  - {port: {number: %[1]d, name: one, protocol: HTTPS}, hosts: [one.example.com],
    tls: {mode: SIMPLE, credentialName: one}}
  - {port: {number: %[1]d, name: two, protocol: HTTPS}, hosts: [two.example.com], tls: {mode: SIMPLE, credentialName: two}}
  - {port: {number: %[1]d, name: mutual, protocol: HTTPS}, hosts: [mutual.example.com], tls: {mode: MUTUAL, credentialName: mutual}}
  - {port: {number: %[1]d, name: roots, protocol: HTTPS}, hosts: [roots.example.com],
        tls: {mode: OPTIONAL_MUTUAL, credentialName: one-more, caCertCredentialName: "configmap://ingress/roots"}}
  - {port: {number: %[1]d, name: split, protocol: HTTPS}, hosts: [split.example.com], tls: {mode: MUTUAL, credentialName: split}}
  - {port: {number: %[1]d, name: pass, protocol: TLS}, hosts: [pass.example.com], tls: {mode: PASSTHROUGH}}
  - {port: {number: %[1]d, name: bad, protocol: HTTPS}, hosts: [bad.example.com], tls: {mode: SIMPLE, credentialName: bad}}
` + routesYAML + `  tls: [{match: [{sniHosts: [pass.example.com]}], route: [{destination: {host: web.internal, port: {number: 443}}}]}]
`

// TestModes has a gateway with hosts of every mode, over both protocols: each shows its own certificate, lets in who it
// should, and a Secret that is broken keeps its last good content and costs no other host anything. Secrets are rotated
// under load without a failed request.
func TestModes(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			ports := freePorts(t, 2)
			issuer, clients, strangers := newCA(t), newCA(t), newCA(t)
			served := map[string]int64{}
			make := func(host string) map[string]string {
				c, k := issuer.issue(t, host, soon())
				served[host] = issuer.serial
				return map[string]string{"tls.crt": c, "tls.key": k}
			}
			mutual := make("mutual.example.com")
			mutual["ca.crt"] = clients.pem()
			generic := make("two.example.com")
			generic = map[string]string{"cert": generic["tls.crt"], "key": generic["tls.key"]}
			pass := make("pass.example.com")
			own, err := tls.X509KeyPair([]byte(pass["tls.crt"]), []byte(pass["tls.key"]))
			must.Succeed(t, err)
			secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			secure.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
			secure.StartTLS()
			t.Cleanup(secure.Close)
			roots := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: roots, namespace: ingress}\ndata:\n  ca.crt: |\n    " +
				strings.ReplaceAll(strings.TrimSpace(clients.pem()), "\n", "\n    ") + "\n"
			r := start(t, ports[0], ports[1], delta, map[string]string{
				"mesh": mesh(backend(t), secure.Listener.Addr().(*net.TCPAddr).Port), "gateway": fmt.Sprintf(modes, ports[0]),
				"one": secret("one", make("one.example.com")), "two": secret("two", generic), "mutual": secret("mutual", mutual),
				"one-more": secret("one-more", make("roots.example.com")), "roots": roots,
				"split": secret("split", make("split.example.com")), "split-cacert": secret("split-cacert", map[string]string{"ca.crt": clients.pem()}),
				"bad": secret("bad", make("bad.example.com")),
			})
			friend, stranger := clients.client(t, "client"), strangers.client(t, "client")
			for _, host := range []string{"one.example.com", "two.example.com", "pass.example.com", "bad.example.com", "roots.example.com"} {
				r.serves(host, issuer.pool(), nil, served[host])
			}
			for _, host := range []string{"mutual.example.com", "split.example.com", "roots.example.com"} {
				r.serves(host, issuer.pool(), friend, served[host])
				if _, err := r.call(host, issuer.pool(), stranger); err == nil {
					t.Errorf("%s lets in a client of another CA", host)
				}
			}
			for _, host := range []string{"mutual.example.com", "split.example.com"} {
				if _, err := r.call(host, issuer.pool(), nil); err == nil {
					t.Errorf("%s lets in a client without a certificate", host)
				}
			}
			if _, err := r.call("nobody.example.com", issuer.pool(), nil); err == nil {
				t.Error("a host that no server has is served")
			}

			// Rotation, while clients call.
			stop := repeat(func() { // one more request at a time, each on a connection of its own
				if _, err := r.call("one.example.com", issuer.pool(), nil); err != nil {
					t.Errorf("while Secrets are rotated: %v", err)
				}
			})
			for range 5 {
				r.write("one", secret("one", make("one.example.com")))
				r.serves("one.example.com", issuer.pool(), nil, served["one.example.com"])
			}

			// A broken certificate keeps its last version and is a finding. The other hosts are not affected, and are rotated.
			good := served["bad.example.com"]
			other := make("bad.example.com")
			expired, expiredKey := issuer.issue(t, "bad.example.com", time.Now().Add(-time.Hour))
			for _, c := range []struct {
				name, field, says string
				data              map[string]string
			}{
				{"a key that does not match", `data["tls.key"]`, "not the private key",
					map[string]string{"tls.crt": other["tls.crt"], "tls.key": make("bad.example.com")["tls.key"]}},
				{"expired", `data["tls.crt"]`, "it expired", map[string]string{"tls.crt": expired, "tls.key": expiredKey}},
				{"garbage", `data["tls.crt"]`, "no certificate in PEM", map[string]string{"tls.crt": "garbage", "tls.key": "garbage"}},
				{"no key", `data["tls.key"]`, "no key", map[string]string{"tls.crt": other["tls.crt"]}},
				{"a large certificate", `data["tls.crt"]`, "bytes, more than",
					map[string]string{"tls.crt": strings.Repeat(other["tls.crt"], 300), "tls.key": other["tls.key"]}},
			} {
				r.write("bad", secret("bad", c.data))
				suite.Eventually(t, c.name+" is a finding", func() bool { return r.hasFinding("Secret ingress/bad", c.field, c.says) })
				r.write("two", secret("two", make("two.example.com")))
				r.serves("two.example.com", issuer.pool(), nil, served["two.example.com"])
				r.serves("bad.example.com", issuer.pool(), nil, good)
			}
			r.write("bad", secret("bad", make("bad.example.com")))
			r.serves("bad.example.com", issuer.pool(), nil, served["bad.example.com"])
			suite.Eventually(t, "nothing is wrong", func() bool { return !r.hasFinding("Secret ingress/bad", `data["tls.crt"]`, "") })
			if n := stop(); n < 10 {
				t.Errorf("only %d requests were made meanwhile", n)
			}
			stats, err := r.gateway.Stats(t.Context(), `update_rejected$|listener_manager.lds`)
			must.Succeed(t, err)
			for name, n := range stats {
				if strings.HasSuffix(name, "update_rejected") && n > 0 {
					t.Errorf("%s: %d", name, n)
				}
			}
			if n := stats["listener_manager.lds.update_success"]; n > 3 {
				t.Errorf("listeners were updated %d times", n)
			}
		})
	}
}

// repeat calls a function again and again until the result is called, which returns how often that was.
func repeat(call func()) (stop func() int) {
	var n atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				call()
				n.Add(1)
			}
		}
	}()
	return func() int {
		close(end)
		<-ended
		return int(n.Load())
	}
}
