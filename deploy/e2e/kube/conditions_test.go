package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const timed = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{timeout: %s, route: [{destination: {host: web}}]}]}
`

// named is the VirtualService with a name for its route.
const named = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{name: %s, route: [{destination: {host: web}}]}]}
`

// proxies starts simulated proxies, and returns their process. They end with the test.
func proxies(w *installed.World, address, pod string, count int) *os.Process {
	w.T.Helper()
	cmd := exec.CommandContext(w.Ctx, program, "load", "--address", address, "--proxies", fmt.Sprint(count), "--namespace", "shop",
		"--pod", pod, "--duration", "1h")
	cmd.Stderr = w.T.Output()
	ended, err := child.Start(cmd)
	w.Must(err)
	w.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return cmd.Process
}

// kstatusVersion returns the version of kstatus in go.mod.
func kstatusVersion() string {
	text, err := os.ReadFile("../../../go.mod")
	if m := regexp.MustCompile(`sigs\.k8s\.io/cli-utils (\S+)`).FindSubmatch(text); err == nil && m != nil {
		return string(m[1])
	}
	return "unknown"
}

// TestConditions: with the rights of the chart, one of two replicas writes whether an object is in force. While one of
// three proxies is held back, the conditions name it, kstatus reads the object as InProgress, and Helm, which has a
// kstatus of its own, waits. Once it goes on, all say that the object is in force. A version that a proxy rejects, and
// a version that cannot be used, are Failed. Findings stay beside the conditions. Nothing is written while nothing
// changes.
func TestConditions(t *testing.T) {
	t.Parallel()
	w := installed.Start(t, "--set", "env.PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS=true,env.PILOT_ENABLE_ANALYSIS=true")
	w.Write("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n")
	one := w.Launch(program, "istiod", "istiod-0", "--drainDuration=0s").Ready()
	w.Eventually("a replica leads", func() error {
		l, err := w.Client().CoordinationV1().Leases(installed.Namespace).Get(w.Ctx, "istio-status-leader", metav1.GetOptions{})
		if err == nil && l.Spec.HolderIdentity == nil {
			err = errors.New("it does not")
		}
		return err
	})
	proxies(w, one.GRPC, "web-{i}", 2)
	held := proxies(w, one.GRPC, "held-{i}", 1)

	routes := w.Dynamic().Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}).
		Namespace("shop")
	get := func() *unstructured.Unstructured {
		u, err := routes.Get(w.Ctx, "web", metav1.GetOptions{})
		w.Must(err)
		return u
	}
	flux := readHealthChecks(t)
	// says returns an error unless the conditions of the newest generation are these, by type, and kstatus and Flux read
	// the object like this.
	says := func(read kstatus.Status, want map[string]string) error {
		u := get()
		got := map[string]string{}
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range all {
			c := c.(map[string]any)
			if c["type"] != "PassedAnalysis" && c["observedGeneration"] == u.GetGeneration() {
				got[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["message"])
			}
		}
		at, _, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		if result, fault := kstatus.Compute(u); fault != nil || result.Status != read {
			err = errors.Join(err, fault, fmt.Errorf("kstatus reads %v, want %s", result, read))
		}
		if got := flux.read(u); got != read {
			err = errors.Join(err, fmt.Errorf("the expressions for Flux say %s, want %s", got, read))
		}
		for name, text := range want {
			if len(got[name]) < len(text) || got[name][:len(text)] != text {
				err = errors.Join(err, fmt.Errorf("%s: %q, want %q", name, got[name], text))
			}
		}
		if len(got) != len(want) || at != u.GetGeneration() {
			err = errors.Join(err, fmt.Errorf("generation %d, status %v", u.GetGeneration(), u.Object["status"]))
		}
		return err
	}
	inForce := map[string]string{"Reconciled": "True 3 of 3 proxies"}
	for i := 1; ; i++ { // until all proxies are connected
		w.Write(fmt.Sprintf(timed, fmt.Sprintf("%ds", i)))
		err := errors.New("no condition")
		for began := time.Now(); err != nil && time.Since(began) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
			err = says(kstatus.CurrentStatus, inForce)
		}
		if err == nil {
			break
		}
		if w.Ctx.Err() != nil {
			t.Fatal(err)
		}
	}

	// Helm changes the object while a proxy is held back.
	dir := t.TempDir()
	w.Must(os.MkdirAll(filepath.Join(dir, "templates"), 0o755))
	w.Must(os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte("apiVersion: v2\nname: web\nversion: 1.0.0\n"), 0o600))
	template := fmt.Sprintf(timed, "{{ .Values.timeout }}")
	w.Must(os.WriteFile(filepath.Join(dir, "templates", "web.yaml"), []byte(template), 0o600))
	helms, err := charts.Helms(t.TempDir(), w.Kubeconfig())
	w.Must(err)
	upgrade := func(timeout, patience string) error {
		_, err := helms[len(helms)-1].Run(w.Ctx, "upgrade", "--install", "web", dir, "-n", "shop", "--take-ownership", "--force-conflicts",
			"--set", "timeout="+timeout, "--wait", "--timeout", patience)
		return err
	}
	w.Must(upgrade("100s", "30s"))
	if err := says(kstatus.CurrentStatus, inForce); err != nil {
		t.Errorf("after helm upgrade --wait: %v", err)
	}
	w.Must(held.Signal(syscall.SIGSTOP))
	if err := upgrade("101s", "4s"); err == nil {
		t.Error("helm upgrade --wait does not wait for a proxy that is held back")
	}
	late := map[string]string{"Reconciled": "False 2 of 3 proxies", "Reconciling": "True waiting for held-0.shop since 20"}
	// An object that was written just before is written again after some seconds.
	w.Eventually("the proxy that is held back is named", func() error { return says(kstatus.InProgressStatus, late) })
	w.Must(held.Signal(syscall.SIGCONT))
	w.Eventually("it is in force", func() error { return says(kstatus.CurrentStatus, inForce) })
	w.Must(upgrade("102s", "30s"))

	// kstatus never reads a generation as Current before it is in force.
	w.Must(held.Signal(syscall.SIGSTOP))
	w.Write(fmt.Sprintf(timed, "103s"))
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
		u := get()
		if result, err := kstatus.Compute(u); err != nil || result.Status != kstatus.InProgressStatus || flux.read(u) != result.Status {
			t.Fatalf("%s after the change kstatus reads %v, %v, while a proxy is held back", time.Since(began), result, err)
		}
	}
	w.Must(held.Signal(syscall.SIGCONT))
	w.Eventually("it is in force", func() error { return says(kstatus.CurrentStatus, inForce) })

	// A proxy that rejects a version, and a version that is not used as it is written.
	probe := connect(t, "delta", one.GRPC, nil)
	w.Eventually("the probe has routes", func() error {
		if !probe.has(envoy.RouteType, "80", "web.shop") {
			return errors.New("it does not")
		}
		return nil
	})
	w.Write(fmt.Sprintf(named, refusedText))
	w.Eventually("it is rejected", func() error {
		return says(kstatus.FailedStatus,
			map[string]string{"Reconciled": "False 3 of 4 proxies", "Stalled": "True probe.shop rejects it (rds): "})
	})
	w.Write(fmt.Sprintf(named, "good"))
	inForce = map[string]string{"Reconciled": "True 4 of 4 proxies"}
	w.Eventually("the next version is in force", func() error { return says(kstatus.CurrentStatus, inForce) })
	w.Write(strings.Replace(fmt.Sprintf(named, "bad"), "host: web", "host: web, port: {number: 70000}", 1))
	w.Eventually("it is not used", func() error {
		return says(kstatus.FailedStatus, map[string]string{"Reconciled": "False ", "Stalled": "True spec.http[0].route[0].destination.port"})
	})
	w.Write(fmt.Sprintf(named, "good"))
	w.Eventually("a version that is used is in force", func() error { return says(kstatus.CurrentStatus, inForce) })

	// Findings and conditions stay beside each other, and nothing is written while nothing changes.
	w.Write(fmt.Sprintf(routed, "wbe"))
	w.Eventually("a finding", func() error {
		if list, _, _ := unstructured.NestedSlice(get().Object, "status", "validationMessages"); len(list) != 1 {
			return fmt.Errorf("messages %v", list)
		}
		return says(kstatus.CurrentStatus, inForce)
	})
	steady := get().GetResourceVersion()
	w.Write("apiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n")
	time.Sleep(3 * time.Second)
	if got := get().GetResourceVersion(); got != steady {
		t.Errorf("version %s of a status that says what it should, was %s: %v", got, steady, get().Object["status"])
	}

	// Before its first status, a new object is Current for kstatus, and not for the expressions for Flux.
	fresh := get()
	unstructured.RemoveNestedField(fresh.Object, "status")
	if result, err := kstatus.Compute(fresh); err != nil || result.Status != kstatus.CurrentStatus ||
		flux.read(fresh) == kstatus.CurrentStatus {
		t.Errorf("without a status: kstatus %v, %v; Flux %s", result, err, flux.read(fresh))
	}
	if !t.Failed() {
		w.Must(compat.CheckProject("kstatus", kstatusVersion(),
			"its library, and the one in Helm, read a VirtualService that is in force, behind, rejected or not used", "works"))
	}
}
