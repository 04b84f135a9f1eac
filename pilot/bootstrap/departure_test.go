package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestDeparture deletes the Pod of a connected proxy: the proxy keeps what serves those who have not heard of it yet,
// follows the mesh, and loses its inbound configuration when the time is over, unless the Pod comes back.
func TestDeparture(t *testing.T) {
	const (
		pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: a, labels: {app: web}}\n" +
			"spec: {containers: [{name: web, image: web}]}\nstatus: {phase: Running, podIP: 10.0.0.1}\n"
		inbound = "inbound|80||"
	)
	o := testOptions(t)
	file := func(name string) string { return filepath.Join(o.ConfigDir, name) }
	write(t, file("web.yaml"), strings.Replace(strings.ReplaceAll(service, "NAME", "web"), "spec:", "spec:\n  selector: {app: web}", 1))
	write(t, file("pod.yaml"), pod)
	for name, departure := range map[string]time.Duration{"keeps": time.Hour, "loses": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Limits.Departure = departure
			o.AddressFile = filepath.Join(t.TempDir(), "addresses.json")
			s, err := New(o)
			must.Succeed(t, err)
			run(t, s)
			eventually(t, "the address file", func() bool { _, err := os.Stat(o.AddressFile); return err == nil })
			stream := subscribe(t, s.Addresses().GRPC)
			if _, text := fetch(t, s.Addresses().HTTP, "/debug/endpointz"); !strings.Contains(text, "10.0.0.1") {
				t.Fatalf("no endpoint in %s", text)
			}
			if !clusters(t, stream, inbound) {
				t.Fatal("the first response has no inbound cluster")
			}
			must.Succeed(t, os.Remove(file("pod.yaml")))
			t.Cleanup(func() { write(t, file("pod.yaml"), pod) })
			if departure < time.Hour {
				for clusters(t, stream, inbound) {
					continue // Recv ends with the deadline
				}
				return
			}
			eventually(t, "the endpoint is gone", func() bool {
				_, text := fetch(t, s.Addresses().HTTP, "/debug/endpointz")
				return !strings.Contains(text, "10.0.0.1")
			})
			write(t, file("more.yaml"), strings.ReplaceAll(service, "NAME", "added"))
			t.Cleanup(func() { os.Remove(file("more.yaml")) })
			if !clusters(t, stream, inbound) {
				t.Error("the inbound cluster has gone with the Pod")
			}
		})
	}
}
