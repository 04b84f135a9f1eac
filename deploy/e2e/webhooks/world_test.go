package webhooks

import (
	"context"
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
	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
)

const root = "istio-system"

// program is the binary under test.
var program string

func TestMain(m *testing.M) { kubelet.Main(m, &program) }

// world is a cluster with the charts installed, whose CA is plugged in, and webhooks at a port of this host.
type world struct {
	*cluster.Cluster
	t      *testing.T
	ctx    context.Context
	folder string // of the CA
	port   string // host:port of the webhooks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := &world{Cluster: c, t: t, ctx: ctx, folder: t.TempDir()}
	port, err := cluster.FreePort(ctx, "127.0.0.1")
	w.must(err)
	w.port = net.JoinHostPort("127.0.0.1", port)
	helms, err := charts.Helms(t.TempDir(), c.Kubeconfig())
	w.must(err)
	for _, release := range []string{"base", "istiod"} {
		chart, err := charts.Chart(release)
		w.must(err)
		args := []string{"install", release, chart, "-n", root, "--create-namespace"}
		if release == "istiod" {
			args = append(args, "--set", "env.ROOT_CA_DIR="+w.folder, "--set", "env.ISTIO_MULTIROOT_MESH=true", "--set", "env.ISTIOD_CUSTOM_HOST=127.0.0.1", "--set", "global.configValidation=false")
		}
		_, err = helms[0].Run(ctx, args...)
		w.must(err)
	}
	w.apply(rights)
	return w
}

// rights let the server write the configurations of these tests, whose names the chart does not know.
const rights = `
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

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(yaml string) { w.t.Helper(); w.must(w.Apply(w.ctx, []byte(yaml))) }

func (w *world) eventually(what string, ok func() error) {
	w.t.Helper()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("never: %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// plug gives the server a CA, which it takes at once, whatever root it had.
func (w *world) plug(organization string) {
	w.t.Helper()
	b, err := pki.NewSelfSigned(organization, 24*time.Hour, time.Now())
	w.must(err)
	f, err := b.Encode()
	w.must(err)
	// A server that reads between two of the writes refuses what does not belong together, and reads again.
	for name, text := range map[string][]byte{"ca-key.pem": f.Key, "root-cert.pem": f.Roots, "ca-cert.pem": f.Certificate} {
		tmp := filepath.Join(w.t.TempDir(), name)
		w.must(os.WriteFile(tmp, text, 0o600))
		w.must(os.Rename(tmp, filepath.Join(w.folder, name)))
	}
}

// replica is a server of the chart.
type replica struct {
	*kubelet.Container
	w         *world
	addresses string
	pages     string // where its metrics are
}

// launch starts a server as the chart's Deployment would start that pod.
func (w *world) launch(name string) *replica {
	w.t.Helper()
	dir := w.t.TempDir()
	r := &replica{w: w, addresses: filepath.Join(dir, "addresses.json")}
	o := kubelet.Options{
		Cluster: w.Cluster, Program: program, Namespace: root, Deployment: "istiod", Pod: name, Dir: dir,
		Args: []string{"--addressFile", r.addresses, "--drainDuration=0s", "--httpsAddr=" + w.port},
	}
	for _, flag := range []string{"monitoringAddr", "grpcAddr", "secureGRPCAddr", "httpAddr"} {
		o.Args = append(o.Args, "--"+flag+"=127.0.0.1:0")
	}
	var err error
	r.Container, err = kubelet.Start(w.ctx, o)
	w.must(err)
	w.t.Cleanup(func() {
		select {
		case <-r.Ended():
		default:
			if err := r.Stop(); err != nil {
				w.t.Error(err)
			}
		}
		if w.t.Failed() {
			w.t.Logf("%s said:\n%s", name, r.Log())
		}
	})
	w.eventually("the server is ready", func() error {
		select {
		case <-r.Ended():
			w.t.Fatalf("it has ended: %s", r.Log())
		default:
		}
		text, err := os.ReadFile(r.addresses)
		if err != nil {
			return err
		}
		var at struct{ Monitoring string }
		err = json.Unmarshal(text, &at)
		r.pages = at.Monitoring
		return err
	})
	return r
}

// metric reports whether the server's metrics have a line that begins so.
func (r *replica) metric(line string) error {
	q, err := http.NewRequestWithContext(r.w.ctx, http.MethodGet, "http://"+r.pages+"/metrics", nil)
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
func (w *world) issuer() (string, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it looks at the certificate itself
	conn, err := d.DialContext(w.ctx, "tcp", w.port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.Organization[0], nil
}

// Resources of webhook configurations, and of what they are asked about.
var (
	validating = registrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	mutating   = registrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	gateways   = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "gateways"}
)

// hook is what the tests look at of a webhook.
type hook struct {
	Name          string
	ClientConfig  struct{ CABundle []byte }
	FailurePolicy string
}

// hooks returns the webhooks of a configuration, and its version.
func (w *world) hooks(resource schema.GroupVersionResource, name string) ([]hook, string, error) {
	u, err := w.Dynamic().Resource(resource).Get(w.ctx, name, metav1.GetOptions{})
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
func (w *world) kept(what, name string, roots int) (version string) {
	w.t.Helper()
	w.eventually(what+": "+name+" is as it should be", func() error {
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
func (w *world) edit(resource schema.GroupVersionResource, name, patch string) {
	w.t.Helper()
	_, err := w.Dynamic().Resource(resource).Patch(w.ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

// Hosts of a Gateway: one that is valid, and one that the CustomResourceDefinition takes, and the webhook does not.
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
func (w *world) create(u *unstructured.Unstructured) error {
	_, err := w.Dynamic().Resource(gateways).Namespace("default").Create(w.ctx, u, metav1.CreateOptions{})
	return err
}
