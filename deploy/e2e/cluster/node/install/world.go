package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// World is a cluster with a node, for one test.
type World struct {
	*cluster.Cluster
	Node *node.Node

	t   *testing.T
	ctx context.Context
}

// New starts a cluster with a node, as Start does, in a new folder. If the test fails, it logs the end of each log.
func New(t *testing.T, o Options) *World {
	t.Helper()
	o.Work = filepath.Join(os.TempDir(), "world")
	must.Succeed(t, os.Mkdir(o.Work, 0o755))
	suite.LogTails(t, o.Work)
	w := &World{t: t, ctx: t.Context()}
	w.Cluster, w.Node = Start(w.ctx, t, o)
	return w
}

// Write applies YAML.
func (w *World) Write(yaml string) {
	w.t.Helper()
	must.Succeed(w.t, w.Apply(w.ctx, []byte(yaml)))
}

// File returns a file of the folder of Prepare.
func (w *World) File(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(DirVar), name))
	must.Succeed(w.t, err)
	return string(text)
}

// Ready waits until all replicas of a Deployment, and no others, are ready.
func (w *World) Ready(namespace, deployment string) {
	w.t.Helper()
	suite.Eventually(w.t, deployment+" is ready", func() bool {
		d, err := w.Client().AppsV1().Deployments(namespace).Get(w.ctx, deployment, metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == *d.Spec.Replicas &&
			len(w.Pods(namespace, metav1.FormatLabelSelector(d.Spec.Selector))) == int(*d.Spec.Replicas)
	})
}

// Pods returns the pods that a selector selects, without pods that are being deleted.
func (w *World) Pods(namespace, selector string) []corev1.Pod {
	w.t.Helper()
	list, err := w.Client().CoreV1().Pods(namespace).List(w.ctx, metav1.ListOptions{LabelSelector: selector})
	must.Succeed(w.t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// Exec runs a command in the first container of the pod with an app label, and returns its output.
func (w *World) Exec(namespace, app string, command ...string) (string, error) {
	w.t.Helper()
	pods := w.Pods(namespace, "app="+app)
	if len(pods) == 0 {
		return "", fmt.Errorf("no pod has the label app=%s", app)
	}
	i := slices.IndexFunc(pods[0].Spec.Containers, func(c corev1.Container) bool { return c.Name != "istio-proxy" })
	if i < 0 {
		return "", fmt.Errorf("pod %s has no container of an application", pods[0].Name)
	}
	req := w.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pods[0].Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: pods[0].Spec.Containers[i].Name, Command: command, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	exec, err := remotecommand.NewSPDYExecutor(w.Admin().Config(), "POST", req.URL())
	must.Succeed(w.t, err)
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	if err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return stdout.String(), fmt.Errorf("%v: %w: %s", command, err, stderr.String())
	}
	return stdout.String(), nil
}

// Log returns the log of the first container of the pod with an app label.
func (w *World) Log(namespace, app string) string {
	w.t.Helper()
	pods := w.Pods(namespace, "app="+app)
	if len(pods) == 0 {
		return ""
	}
	log, err := w.Client().CoreV1().Pods(namespace).
		GetLogs(pods[0].Name, &corev1.PodLogOptions{Container: pods[0].Spec.Containers[0].Name}).DoRaw(w.ctx)
	must.Succeed(w.t, err)
	return string(log)
}

// LoadBalancer waits for the address of a Service of type LoadBalancer, and returns it.
func (w *World) LoadBalancer(namespace, service string) (addr string) {
	w.t.Helper()
	suite.Eventually(w.t, "Service "+service+" has an address", func() bool {
		s, err := w.Client().CoreV1().Services(namespace).Get(w.ctx, service, metav1.GetOptions{})
		if err == nil && len(s.Status.LoadBalancer.Ingress) > 0 {
			addr = s.Status.LoadBalancer.Ingress[0].IP
		}
		return addr != ""
	})
	return addr
}
