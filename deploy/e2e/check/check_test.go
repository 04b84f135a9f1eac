package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/cmd/check"
	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

// program is the binary under test.
var program string

func TestMain(m *testing.M) { kubelet.Main(m, &program) }

// world is a cluster with the charts installed.
type world struct {
	*installed.World
	helm    charts.Helm
	servers int
}

// check runs the command and returns the red lines.
func (w *world) check(args ...string) ([]check.Result, error) {
	cmd := exec.CommandContext(w.Ctx, program, append([]string{"check", "--kubeconfig", w.Kubeconfig(), "-o", "json"}, args...)...)
	cmd.Env = []string{"HOME=" + w.T.TempDir()}
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 79) {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	var report struct {
		OK     bool
		Checks []check.Result
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("%w in %s", err, text)
	}
	wrong := slices.DeleteFunc(report.Checks, func(r check.Result) bool { return r.State != check.Wrong })
	if report.OK != (err == nil) || report.OK != (len(wrong) == 0) {
		return nil, fmt.Errorf("exit %v of %s", err, text) //nolint:errorlint // The error may be nil.
	}
	return wrong, nil
}

// well waits until nothing is red.
func (w *world) well(args ...string) {
	w.T.Helper()
	w.Eventually("all is well", func() error {
		wrong, err := w.check(args...)
		if err == nil && len(wrong) > 0 {
			err = fmt.Errorf("%+v", wrong)
		}
		return err
	})
}

// broken waits until exactly these lines are red, and returns the command that the first one names. All lines with its
// name have that command.
func (w *world) broken(says []string, args ...string) (fix string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("it says %q", says), func() error {
		wrong, err := w.check(args...)
		if err != nil {
			return err
		}
		if len(wrong) != len(says) {
			return fmt.Errorf("%+v", wrong)
		}
		for i, r := range wrong {
			if !strings.Contains(r.Name+": "+r.Detail, says[i]) || r.Name == wrong[0].Name && r.Fix != wrong[0].Fix {
				return fmt.Errorf("%+v", wrong)
			}
		}
		fix = wrong[0].Fix
		return nil
	})
	return fix
}

// start runs a replica of the Deployment, and sets its status as controllers would.
func (w *world) start() *installed.Replica {
	w.T.Helper()
	w.servers++
	r := w.Launch(program, "istiod", fmt.Sprintf("istiod-%d", w.servers)).Ready()
	_, err := w.Client().AppsV1().Deployments(installed.Namespace).Patch(w.Ctx, "istiod", types.MergePatchType,
		[]byte(`{"status": {"replicas": 1, "readyReplicas": 1}}`), metav1.PatchOptions{}, "status")
	w.Must(err)
	return r
}

// expire replaces the CA in the Secret and the roots of every namespace by one that expired an hour ago.
func (w *world) expire() {
	w.T.Helper()
	began := time.Now().Add(-2 * time.Hour)
	old, err := pki.NewSelfSigned("cluster.local", time.Hour, began)
	w.Must(err)
	files, err := old.Encode()
	w.Must(err)
	patch := func(data any) []byte {
		text, err := json.Marshal(map[string]any{"data": data})
		w.Must(err)
		return text
	}
	_, err = w.Client().CoreV1().Secrets(installed.Namespace).Patch(w.Ctx, "istio-ca-secret", types.MergePatchType,
		patch(map[string][]byte{"ca-cert.pem": files.Certificate, "ca-key.pem": files.Key, "root-cert.pem": files.Roots}), metav1.PatchOptions{})
	w.Must(err)
	maps, err := w.Client().CoreV1().ConfigMaps("").List(w.Ctx, metav1.ListOptions{FieldSelector: "metadata.name=istio-ca-root-cert"})
	w.Must(err)
	for _, m := range maps.Items {
		_, err = w.Client().CoreV1().ConfigMaps(m.Namespace).Patch(w.Ctx, m.Name, types.MergePatchType,
			patch(map[string]string{"root-cert.pem": string(files.Roots)}), metav1.PatchOptions{})
		w.Must(err)
	}
}

// run runs the command that a red line names, as a shell, Helm and the controllers of a cluster would.
func (w *world) run(fix string, running *installed.Replica) *installed.Replica {
	w.T.Helper()
	switch words := strings.Fields(fix); {
	case fix == "kubectl -n istio-system rollout restart deploy/istiod":
		if running != nil {
			w.Must(running.Stop())
		}
		return w.start()
	case fix == "kubectl -n istio-system delete secret istio-ca-secret && kubectl -n istio-system rollout restart deploy/istiod":
		w.Must(w.Client().CoreV1().Secrets(installed.Namespace).Delete(w.Ctx, "istio-ca-secret", metav1.DeleteOptions{}))
		return w.start()
	case words[0] == "helm":
		for i, word := range words {
			if name, ok := strings.CutPrefix(word, "charts/"); ok {
				chart, err := charts.Chart(name)
				w.Must(err)
				words[i] = chart
			}
		}
		_, err := w.helm.Run(w.Ctx, words[1:]...)
		w.Must(err)
	case strings.HasPrefix(fix, "kubectl -n default delete envoyfilter "):
		filters := w.Dynamic().Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1alpha3", Resource: "envoyfilters"})
		w.Must(filters.Namespace("default").Delete(w.Ctx, words[5], metav1.DeleteOptions{}))
	default:
		w.T.Fatalf("the test does not know how to run %q", fix)
	}
	return running
}

func TestCheck(t *testing.T) {
	w := &world{World: installed.Released(t)}
	helms, err := charts.Helms(t.TempDir(), w.Kubeconfig())
	w.Must(err)
	w.helm = helms[0]
	server := w.start()
	w.well("--address", server.Monitoring)

	// A custom resource is gone.
	crds := w.Dynamic().
		Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	w.Must(crds.Delete(w.Ctx, "wasmplugins.extensions.istio.io", metav1.DeleteOptions{}))
	server = w.run(w.broken([]string{"1 definition missing, so objects of these kinds cannot be written: wasmplugins.extensions.istio.io"}),
		server)
	w.well()

	// While the server was away, its leader's objects were changed: a webhook's caBundle, and the roots of a namespace.
	w.Must(server.Stop())
	_, err = w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(w.Ctx, "istio-sidecar-injector", types.JSONPatchType,
		[]byte(`[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": `+
			`"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"}]`), metav1.PatchOptions{})
	w.Must(err)
	server = w.run(w.broken([]string{"istio-sidecar-injector: its caBundle contains no root of the mesh"}), nil)
	w.well("--address", server.Monitoring)

	w.Must(server.Stop())
	_, err = w.Client().CoreV1().ConfigMaps("default").Patch(w.Ctx, "istio-ca-root-cert", types.MergePatchType,
		[]byte(`{"data": {"root-cert.pem": "other"}}`), metav1.PatchOptions{})
	w.Must(err)
	_, err = w.Client().CoreV1().Namespaces().Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}},
		metav1.CreateOptions{})
	w.Must(err)
	server = w.run(w.broken([]string{"later", "default"}), nil)
	w.well("--address", server.Monitoring)

	// The server was away so long that its root has expired.
	w.Must(server.Stop())
	w.expire()
	server = w.run(w.broken(
		[]string{"roots: it expired at ", "istio-sidecar-injector: ", "istio-validator-istio-system: ", "istiod-default-validator: "}), nil)
	w.well("--address", server.Monitoring)

	// A proxy rejects the change of an EnvoyFilter.
	fussy(t, server.GRPC)
	w.Write(oddFilter)
	server = w.run(
		w.broken([]string{"rejected: fussy-1.default rejects LDS: InvalidArgument: Error adding/updating listener(s) virtualOutbound: it is odd"},
			"--address", server.Monitoring), server)
	w.well("--address", server.Monitoring)
}
