package certificates

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
)

const root = "istio-system"

// program is the binary under test.
var program string

func TestMain(m *testing.M) { kubelet.Main(m, &program) }

// world is a cluster with the charts installed.
type world struct {
	*cluster.Cluster
	t   *testing.T
	ctx context.Context
}

// newWorld starts a cluster and installs the charts with more arguments for that of the server.
func newWorld(t *testing.T, set ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := &world{Cluster: c, t: t, ctx: ctx}
	helms, err := charts.Helms(t.TempDir(), c.Kubeconfig())
	w.must(err)
	for _, release := range []string{"base", "istiod"} {
		chart, err := charts.Chart(release)
		w.must(err)
		args := []string{"install", release, chart, "-n", root, "--create-namespace"}
		if release == "istiod" {
			args = append(args, set...)
		}
		_, err = helms[0].Run(ctx, args...)
		w.must(err)
	}
	return w
}

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

// pod is a Pod as the API server would have it once it runs.
func pod(namespace, name, account, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec: {nodeName: %s, serviceAccountName: %s, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.20.0.9, podIPs: [{ip: 10.20.0.9}], conditions: [{type: Ready, status: "True"}]}
`, name, namespace, node, account)
}

// replica is a server of the chart.
type replica struct {
	*kubelet.Container
	w             *world
	secure, pages string
	addresses     string
}

// launch starts a server as the chart's Deployment would start that pod, and waits for nothing.
func (w *world) launch(name string, args ...string) *replica {
	w.t.Helper()
	dir := w.t.TempDir()
	r := &replica{w: w, addresses: filepath.Join(dir, "addresses.json")}
	o := kubelet.Options{
		Cluster: w.Cluster, Program: program, Namespace: root, Deployment: "istiod", Pod: name, Dir: dir,
		Args: append([]string{"--addressFile", r.addresses, "--drainDuration=0s", "--log_output_level=default:info,ca:debug,ads:debug"}, args...),
	}
	for _, flag := range []string{"monitoringAddr", "grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr"} {
		o.Args = append(o.Args, "--"+flag+"=127.0.0.1:0")
	}
	var err error
	r.Container, err = kubelet.Start(w.ctx, o)
	w.must(err)
	w.t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("%s said:\n%s", name, r.Log())
		}
	})
	return r
}

// ready waits until the server is.
func (r *replica) ready() *replica {
	r.w.t.Helper()
	r.w.eventually("the server is ready", func() error {
		select {
		case <-r.Ended():
			r.w.t.Fatalf("it has ended: %s", r.Log())
		default:
		}
		text, err := os.ReadFile(r.addresses)
		if err != nil {
			return err
		}
		var at struct{ SecureGRPC, HTTP string }
		if err := json.Unmarshal(text, &at); err != nil {
			return err
		}
		r.secure, r.pages = at.SecureGRPC, at.HTTP
		return nil
	})
	return r
}

// secretRoots returns the roots of the CA in its Secret.
func (w *world) secretRoots() *x509.CertPool {
	w.t.Helper()
	s, err := w.Client().CoreV1().Secrets(root).Get(w.ctx, "istio-ca-secret", metav1.GetOptions{})
	w.must(err)
	return w.pool(s.Data["root-cert.pem"])
}

func (w *world) pool(text []byte) *x509.CertPool {
	w.t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		w.t.Fatalf("no roots in %q", text)
	}
	return pool
}

// token returns a token for an audience, bound to a pod if that is not empty, as a kubelet has it made.
func (w *world) token(namespace, account, podName, audience string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if podName != "" {
		p, err := w.Client().CoreV1().Pods(namespace).Get(w.ctx, podName, metav1.GetOptions{})
		w.must(err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}
	}
	answer, err := w.Client().CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, account, request, metav1.CreateOptions{})
	w.must(err)
	return answer.Status.Token
}

// forged returns a token with other claims, signed with the key of this API server.
func (w *world) forged(token string, change func(claims map[string]any)) string {
	w.t.Helper()
	signed, err := resign(token, filepath.Join(w.Dir(), "serviceaccounts.key"), change)
	w.must(err)
	return signed
}
