package bootstrap

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const badGateway = `{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"g","namespace":"a"},"spec":{"servers":[]}}`

// reviewOf returns an AdmissionReview about the creation of an object.
func reviewOf(object string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","operation":"CREATE","object":` + object + `}}`
}

// ask has a webhook review something.
func ask(t *testing.T, client *http.Client, url, body string) (int, *admissionv1.AdmissionReview) {
	t.Helper()
	resp, err := client.Post(url, "application/json", bytes.NewBufferString(body))
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	var review admissionv1.AdmissionReview
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &review); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return resp.StatusCode, &review
}

// httpsClient trusts some roots alone.
func httpsClient(t *testing.T, roots *x509.CertPool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: deadline, Transport: transport}
}

// TestWebhooks answers on the port of its own, with the server's certificate and over HTTP/2, or on the HTTP port where
// there is none.
func TestWebhooks(t *testing.T) {
	t.Run("https", func(t *testing.T) {
		o := certificateOptions(t)
		s := started(t, o)
		client, base := httpsClient(t, rootsOf(t, o)), "https://"+s.Addresses().HTTPS
		resp, err := client.Get(base + "/ready")
		must.Succeed(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			t.Errorf("/ready: %s over %s", resp.Status, resp.Proto)
		}
		for _, path := range []string{"/validate", "/validate/anything"} {
			code, r := ask(t, client, base+path, reviewOf(badGateway))
			if code != http.StatusOK || r.Response == nil || r.Response.Allowed || r.Response.UID != "u-1" {
				t.Errorf("%s: %d, %+v", path, code, r.Response)
			}
		}
		if code, _ := ask(t, client, base+"/debug/configz", "{}"); code != http.StatusNotFound {
			t.Errorf("another path: %d", code)
		}
	})
	t.Run("http", func(t *testing.T) {
		o := testOptions(t)
		o.HTTPS = ""
		s := started(t, o)
		code, r := ask(t, http.DefaultClient, "http://"+s.Addresses().HTTP+"/validate", reviewOf(badGateway))
		if code != http.StatusOK || r.Response == nil || r.Response.Allowed {
			t.Errorf("%d, %+v", code, r.Response)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	t.Run("no certificate", func(t *testing.T) {
		if s := started(t, testOptions(t)); s.Addresses().HTTPS != "" {
			t.Errorf("it listens at %s", s.Addresses().HTTPS)
		}
	})
}
