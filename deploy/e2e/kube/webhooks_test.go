package kube

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

// admission is a cluster with the charts installed and a plugged-in CA. Its webhooks are at a port of this host.
type admission struct {
	*installed.World
	folder string // of the CA
	port   string // host:port of the webhooks
}

func newAdmission(t *testing.T) *admission {
	t.Helper()
	w := startAdmission(t, "global.configValidation=false")
	w.Write(webhookRights)
	return w
}

// startAdmission installs the charts with values for Helm.
func startAdmission(t *testing.T, values string) *admission {
	t.Helper()
	folder := t.TempDir()
	w := &admission{folder: folder, World: installed.Start(t,
		"--set", "env.ROOT_CA_DIR="+folder, "--set", "env.ISTIO_MULTIROOT_MESH=true", "--set", "env.ISTIOD_CUSTOM_HOST=127.0.0.1",
		"--set", values)}
	port, err := freeport.Pick(w.Ctx, "127.0.0.1")
	w.Must(err)
	w.port = net.JoinHostPort("127.0.0.1", port)
	return w
}

// webhookRights let the server write the configurations of these tests, whose names the chart does not know.
const webhookRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: webhooks-of-tests}
rules:
- {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations], verbs: [patch]}
- {apiGroups: [networking.istio.io], resources: [gateways], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: webhooks-of-tests}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhooks-of-tests}
subjects: [{kind: ServiceAccount, name: istiod, namespace: istio-system}]
`

// plug gives the server a CA, which it uses at once, whatever root it had.
func (w *admission) plug(organization string) {
	w.T.Helper()
	b, err := pki.NewSelfSigned(organization, 24*time.Hour, time.Now())
	w.Must(err)
	f, err := b.Encode()
	w.Must(err)
	// A server that reads between two of the writes refuses files that do not belong together, and reads again.
	for name, text := range map[string][]byte{"ca-key.pem": f.Key, "root-cert.pem": f.Roots, "ca-cert.pem": f.Certificate} {
		tmp := filepath.Join(w.T.TempDir(), name)
		w.Must(os.WriteFile(tmp, text, 0o600))
		w.Must(os.Rename(tmp, filepath.Join(w.folder, name)))
	}
}

// launch starts a server of the chart, and waits until it is ready.
func (w *admission) launch(name string) *installed.Replica {
	w.T.Helper()
	return w.Launch(program, "istiod", name, "--drainDuration=0s", "--httpsAddr="+w.port).Ready()
}

// metric reports whether the server's metrics have a line that begins so.
func (w *admission) metric(r *installed.Replica, line string) error {
	q, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, "http://"+r.Monitoring+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "\n"+line) {
		return fmt.Errorf("no metric %s", line)
	}
	return nil
}

// issuer returns the organization of the CA whose certificate the port of the webhooks shows.
func (w *admission) issuer() (string, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it looks at the certificate itself
	conn, err := d.DialContext(w.Ctx, "tcp", w.port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.Organization[0], nil
}

// Resources of webhook configurations and of the objects that they validate.
var (
	validating    = registrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	mutating      = registrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	istioGateways = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "gateways"}
)

// hook holds the fields of a webhook that the tests read.
type hook struct {
	Name          string
	ClientConfig  struct{ CABundle []byte }
	FailurePolicy string
}

// hooks returns the webhooks of a configuration, and its version.
func (w *admission) hooks(resource schema.GroupVersionResource, name string) ([]hook, string, error) {
	u, err := w.Dynamic().Resource(resource).Get(w.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(u.Object["webhooks"])
	if err != nil {
		return nil, "", err
	}
	var list []hook
	return list, u.GetResourceVersion(), errors.Join(err, json.Unmarshal(text, &list))
}

// kept waits until a ValidatingWebhookConfiguration has so many roots and the policy Fail, and returns its version.
func (w *admission) kept(what, name string, roots int) (version string) {
	w.T.Helper()
	w.Eventually(what+": "+name+" is as it should be", func() error {
		list, at, err := w.hooks(validating, name)
		if err != nil {
			return err
		}
		version = at
		for _, h := range list {
			if n := strings.Count(string(h.ClientConfig.CABundle), "BEGIN CERTIFICATE"); n != roots || h.FailurePolicy != "Fail" {
				return fmt.Errorf("%s: %d roots, %s", h.Name, n, h.FailurePolicy)
			}
		}
		return nil
	})
	return version
}

// edit changes a webhook configuration.
func (w *admission) edit(resource schema.GroupVersionResource, name, patch string) {
	w.T.Helper()
	_, err := w.Dynamic().Resource(resource).Patch(w.Ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	w.Must(err)
}

// Hosts of a Gateway: a valid one, and one that the CustomResourceDefinition accepts and the webhook refuses.
const good, bad = "a.example.com", "a b"

// gateway returns a Gateway for a host.
func gateway(name, host string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"istio.io/rev": "default"}},
		"spec": map[string]any{
			"selector": map[string]any{"istio": "none"},
			"servers":  []any{map[string]any{"port": map[string]any{"number": int64(80), "name": "http", "protocol": "HTTP"}, "hosts": []any{host}}},
		},
	}}
}

// create stores an object.
func (w *admission) create(u *unstructured.Unstructured) error {
	_, err := w.Dynamic().Resource(istioGateways).Namespace("default").Create(w.Ctx, u, metav1.CreateOptions{})
	return err
}
