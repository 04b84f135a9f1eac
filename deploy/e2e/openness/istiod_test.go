//go:build compat

package openness

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// slots is how many worlds are in the cluster at once. The last slot tells when a control plane has read all.
const slots = 40

// meshConfig keeps what is in one slot from others.
const meshConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    defaultServiceExportTo: ["."]
    defaultVirtualServiceExportTo: ["."]
    defaultDestinationRuleExportTo: ["."]
    extensionProviders:
    - name: checker
      envoyExtAuthzHttp: {service: checker.istio-system.svc.cluster.local, port: 80}
---
apiVersion: v1
kind: Service
metadata: {name: checker, namespace: istio-system, annotations: {networking.istio.io/exportTo: "*"}}
spec: {clusterIP: 10.96.254.1, ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
`

// search is both control planes on one API server.
type search struct {
	t            *testing.T
	ctx          context.Context
	c            *cluster.Cluster
	theirs, ours *grpc.ClientConn
	generation   int
	istiod       string // the program
	refused      int    // by the API server
	ended        int    // worlds with which istiod has ended
	unsettled    int    // worlds of which it is not known when they are read
	compared     int
	objects      int       // of the worlds that were compared
	end          time.Time // no batch begins after it, unless it is zero
}

// searched is how long random worlds are compared; what has been found is looked at again after that.
const searched = 9 * time.Minute

// TestClosedAsIstiod searches for worlds that this control plane leaves more open than istiod.
func TestClosedAsIstiod(t *testing.T) {
	seed, _ := histories.Seed(t)
	count, err := strconv.Atoi(cmp.Or(os.Getenv("OPENNESS_WORLDS"), "2000"))
	must.Succeed(t, err)
	t.Logf("RAPID_SEED=%d OPENNESS_WORLDS=%d", seed, count)
	s := start(t)
	read := func(folder string) (worlds []World) {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		s.must(err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			s.must(err)
			w, err := ParseWorld(folder+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"), text)
			s.must(err)
			worlds = append(worlds, w)
		}
		return worlds
	}
	good := read("good")
	worlds := append(slices.Clone(good), read("open")...)
	g := NewGenerator(s.schemas(), good, seed)
	for i := range count {
		worlds = append(worlds, g.World(strconv.Itoa(i)))
	}
	if only := os.Getenv("OPENNESS_ONLY"); only != "" {
		worlds = slices.DeleteFunc(worlds, func(w World) bool { return !strings.Contains(w.Name, only) })
	}
	total := len(worlds)
	worlds = slices.DeleteFunc(worlds, func(w World) bool {
		err := w.Unreadable()
		if err != nil && !w.Generated {
			t.Errorf("%s: %v", w.Name, err)
		}
		return err != nil
	})
	t.Logf("istiod cannot decode %d of %d worlds", total-len(worlds), total)
	var again []World
	s.end = time.Now().Add(searched)
	s.run(worlds, 0, func(_ Slot, w World, theirs, ours map[Proxy]trace.Config, found []Difference) {
		dump(t, w, theirs, ours)
		if len(found) > 0 {
			again = append(again, w)
		}
	})
	first, objects := s.compared, s.objects
	s.end = time.Time{}
	s.run(again, time.Second, func(slot Slot, w World, theirs, ours map[Proxy]trace.Config, found []Difference) {
		if len(found) == 0 {
			return
		}
		var lines []string
		for _, d := range found {
			lines = append(lines, d.String())
		}
		t.Errorf("%s\n  odd: %s\n  %s\n%s", w.Name, strings.Join(w.Odd, "\n  odd: "), strings.Join(lines, "\n  "), w.YAML())
		dump(t, w, theirs, ours)
	})
	t.Logf("%d worlds of %d objects compared, %d refused by the API server, %d ended istiod, %d not settled, %d looked at again",
		first, objects, s.refused, s.ended, s.unsettled, len(again))
	if first < s.unsettled {
		t.Error("most worlds were not compared")
	}
	s.closed(read("closed"))
}

// closed compares the other way round: these worlds are more closed here than with istiod, and have to stay so.
func (s *search) closed(worlds []World) {
	s.run(worlds, time.Second, func(slot Slot, w World, theirs, ours map[Proxy]trace.Config, _ []Difference) {
		for _, p := range []Proxy{Sidecar, Gateway} {
			found, err := Compare(slot, w.In(slot), p, ours[p], theirs[p])
			s.must(err)
			if len(found) > 0 {
				return
			}
		}
		s.t.Errorf("%s is no longer more closed than with istiod:\n%s", w.Name, w.YAML())
	})
}

func start(t *testing.T) *search {
	t.Helper()
	istiod, err := binaries.Tool("istiod", "ISTIOD")
	must.Succeed(t, err)
	ours := os.Getenv("PILOT_DISCOVERY")
	if ours == "" {
		t.Fatal("PILOT_DISCOVERY names no program")
	}
	ctx, c := installed.CRDs(t, cluster.Options{})
	s := &search{t: t, ctx: ctx, c: c}
	crds, err := cluster.ExperimentalGatewayCRDs(ctx)
	s.must(err)
	names, err := filepath.Glob(filepath.Join(crds, "gateway.*.yaml"))
	s.must(err)
	for _, name := range names {
		s.must(c.InstallCRDs(ctx, name))
	}
	s.must(c.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n"+"---"+meshConfig)))
	certificate, key := selfSigned(t)
	s.parallel(slots, func(i int) error {
		return c.Apply(ctx, World{Objects: Slot(i).Base(certificate, key)}.YAML())
	})
	s.istiod = istiod
	s.theirs, s.ours = s.connect(istiod), s.connect(ours)
	return s
}

// connect starts a control plane, and returns a connection to it.
func (s *search) connect(program string) *grpc.ClientConn {
	s.t.Helper()
	at := installed.Peer{Program: program, Kubeconfig: s.c.Kubeconfig(), Env: []string{
		"PILOT_ENABLE_ALPHA_GATEWAY_API=true", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false",
		"PILOT_ENABLE_GATEWAY_API_STATUS=false", "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER=false",
		"PILOT_MAX_REQUESTS_PER_SECOND=10000", // istiod admits few proxies a second by default
	}}.Start(s.ctx, s.t)
	conn, err := grpc.NewClient(at["grpcAddr"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *search) must(err error) {
	s.t.Helper()
	must.Succeed(s.t, err)
}

// parallel calls do with 0 to n-1, four at a time.
func (s *search) parallel(n int, do func(int) error) {
	s.t.Helper()
	next, errs := make(chan int), make([]error, n)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	s.must(errors.Join(errs...))
}

func (s *search) schemas() Schemas {
	istio, err := cluster.IstioCRDs(s.ctx)
	s.must(err)
	gateways, err := cluster.ExperimentalGatewayCRDs(s.ctx)
	s.must(err)
	files, err := filepath.Glob(filepath.Join(gateways, "gateway.*.yaml"))
	s.must(err)
	out := Schemas{}
	for _, file := range append(files, istio) {
		text, err := os.ReadFile(file)
		s.must(err)
		definitions, err := cluster.Parse(text)
		s.must(err)
		for kind, schema := range ReadSchemas(definitions) {
			out[kind] = schema
		}
	}
	return out
}

// result is called for each world, with what both proxies were sent and the differences that are not accepted.
type result func(slot Slot, w World, theirs, ours map[Proxy]trace.Config, found []Difference)

// sent is a world with what both control planes sent the proxies of its slot.
type sent struct {
	slot         Slot
	world        World
	theirs, ours map[Proxy]trace.Config
}

// run compares worlds, many at a time; those that apply to proxies of others by themselves. What has been fetched is
// compared while the next worlds settle. Calls of do are one after the other, in no order.
func (s *search) run(worlds []World, pause time.Duration, do result) {
	s.t.Helper()
	queue := make(chan sent, 2*slots)
	var comparing sync.WaitGroup
	var one sync.Mutex
	var errs []error
	for range runtime.GOMAXPROCS(0) {
		comparing.Go(func() {
			for x := range queue {
				found, err := x.differences()
				one.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					s.compared++
					s.objects += len(x.world.Objects)
					do(x.slot, x.world, x.theirs, x.ours, found)
				}
				one.Unlock()
			}
		})
	}
	defer func() {
		close(queue)
		comparing.Wait()
		s.must(errors.Join(errs...))
	}()
	var batch []World
	for i, w := range worlds {
		if !s.end.IsZero() && time.Now().After(s.end) {
			s.t.Logf("after %v, %d worlds are left out", searched, len(worlds)-i+len(batch))
			return
		}
		if w.Shared() {
			s.batch([]World{w}, pause+time.Second/2, queue)
			s.must(s.c.Apply(s.ctx, []byte(meshConfig))) // the world may have had another one
			continue
		}
		if batch = append(batch, w); len(batch) == slots-1 {
			s.batch(batch, pause, queue)
			batch = nil
		}
	}
	if len(batch) > 0 {
		s.batch(batch, pause, queue)
	}
}

// differences compares what both proxies were sent.
func (x sent) differences() (found []Difference, err error) {
	w := x.world.In(x.slot)
	for _, p := range []Proxy{Sidecar, Gateway} {
		more, err := Compare(x.slot, w, p, x.theirs[p], x.ours[p])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		found = append(found, Unexplained(w, more)...)
	}
	return found, nil
}

// batch puts worlds into the cluster, and into the queue what both control planes send for them. Where one of the
// worlds ends istiod or hides the signs, it is found by halves.
func (s *search) batch(worlds []World, pause time.Duration, queue chan<- sent) {
	s.t.Helper()
	begin := time.Now()
	placed, taken := make([]World, len(worlds)), make([]bool, len(worlds))
	s.parallel(len(worlds), func(i int) error {
		placed[i] = worlds[i].In(Slot(i))
		err := s.c.Apply(s.ctx, placed[i].YAML())
		taken[i] = err == nil
		if err != nil && !placed[i].Generated {
			return fmt.Errorf("%s: %w", placed[i].Name, err)
		}
		return nil
	})
	remove := func() {
		s.parallel(len(worlds), func(i int) error { return s.c.Delete(s.ctx, placed[i].YAML()) })
	}
	applied := time.Since(begin)
	if settled, ended := s.settle(pause); !settled {
		remove()
		if ended {
			s.theirs = s.connect(s.istiod)
		}
		if half := len(worlds) / 2; half > 0 {
			s.batch(worlds[:half], pause, queue)
			s.batch(worlds[half:], pause, queue)
			return
		}
		if ended {
			s.t.Logf("istiod has ended with %s: %q", worlds[0].Name, worlds[0].Odd)
			s.ended++
		} else {
			s.t.Logf("it is not known when %s is read: %q", worlds[0].Name, worlds[0].Odd)
			s.unsettled++
		}
		return
	}
	settled := time.Since(begin)
	theirs, ours := make([]map[Proxy]trace.Config, len(worlds)), make([]map[Proxy]trace.Config, len(worlds))
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		for i, w := range worlds {
			if taken[i] && failed == nil {
				if ours[i], failed = s.both(s.ours, Slot(i)); failed != nil {
					failed = fmt.Errorf("%s: %w\n%s", w.Name, failed, w.YAML())
				}
			}
		}
	})
	for i, w := range worlds {
		if !taken[i] {
			s.refused++
			continue
		}
		var err error
		if theirs[i], err = s.both(s.theirs, Slot(i)); err == nil {
			continue
		}
		s.t.Logf("istiod has ended with %s: %v: %q", w.Name, err, w.Odd)
		s.ended++
		s.must(s.c.Delete(s.ctx, placed[i].YAML()))
		s.theirs = s.connect(s.istiod)
		theirs[i], taken[i] = nil, false
	}
	reading.Wait()
	s.must(failed)
	fetched := time.Since(begin)
	for i := range worlds {
		if taken[i] {
			queue <- sent{Slot(i), worlds[i], theirs[i], ours[i]}
		}
	}
	remove()
	if os.Getenv("OPENNESS_TIMES") != "" {
		s.t.Logf("%d worlds: applied after %v, settled %v, fetched %v, removed %v", len(worlds), applied, settled, fetched, time.Since(begin))
	}
}

// both fetches what both proxies of a slot are sent.
func (s *search) both(conn *grpc.ClientConn, slot Slot) (map[Proxy]trace.Config, error) {
	out := map[Proxy]trace.Config{}
	for _, p := range []Proxy{Sidecar, Gateway} {
		var err error
		if out[p], err = s.fetch(conn, slot, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *search) fetch(conn *grpc.ClientConn, slot Slot, p Proxy) (trace.Config, error) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	return Fetch(ctx, conn, slot.Node(p))
}

// signs are objects of most kinds that say in what a proxy is sent how new it is.
const signs = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: sidecar, namespace: $HOME}
spec: {egress: [{hosts: ["*/*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: sign, namespace: $HOME}
spec: {exportTo: ["."], hosts: [pay.$HOME.svc.cluster.local], http: [{name: sign-N-route, directResponse: {status: 403}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: sign, namespace: $HOME}
spec: {exportTo: ["."], host: pay.$HOME.svc.cluster.local, subsets: [{name: sign-N-rule, labels: {a: b}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: sign-N-entry, namespace: $HOME}
spec: {exportTo: ["."], hosts: [sign-N-entry.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: sign-N-policy, namespace: $HOME}
spec: {rules: [{}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: sign, namespace: $HOME}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: pay.$HOME.svc.cluster.local}}
    patch: {operation: MERGE, value: {alt_stat_name: sign-N-filter}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: sign, namespace: $HOME}
spec:
  parentRefs: [{kind: Service, group: "", name: web, port: 80}]
  rules: [{matches: [{path: {value: /sign-N-http}}], backendRefs: [{name: web, port: 80}]}]
`

// settle waits until both control planes have read what was written before. It reports whether they have within 30
// seconds, which they have not where a world hides the signs themselves, and whether istiod has ended.
func (s *search) settle(pause time.Duration) (settled, ended bool) {
	s.t.Helper()
	slot := Slot(slots - 1)
	s.generation++
	sign := "sign-" + strconv.Itoa(s.generation)
	place := func(n int) []byte {
		return []byte(slot.Place(strings.ReplaceAll(signs, "sign-N", "sign-"+strconv.Itoa(n))))
	}
	if s.generation > 1 {
		old, err := ParseWorld("", place(s.generation-1))
		s.must(err)
		old.Objects = slices.DeleteFunc(old.Objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "sign" })
		s.must(s.c.Delete(s.ctx, old.YAML()))
	}
	s.must(s.c.Apply(s.ctx, place(s.generation)))
	for _, conn := range []*grpc.ClientConn{s.theirs, s.ours} {
		for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			config, err := s.fetch(conn, slot, Sidecar)
			if err != nil && conn == s.theirs {
				return false, true
			}
			s.must(err)
			var lacks []string
			for _, word := range []string{"-route", "-rule", "-entry", "-policy", "-filter", "-http"} {
				if !mentions(config, sign+word) {
					lacks = append(lacks, sign+word)
				}
			}
			if len(lacks) == 0 {
				break
			}
			if time.Since(begin) > 30*time.Second {
				s.t.Logf("%s sends no %v", conn.Target(), lacks)
				return false, false
			}
		}
	}
	time.Sleep(200*time.Millisecond + pause)
	return true, false
}

func mentions(c trace.Config, word string) bool {
	for _, list := range c {
		if slices.ContainsFunc(list, func(r *envoy.Resource) bool { return strings.Contains(string(r.Bytes()), word) }) {
			return true
		}
	}
	return false
}

func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "odd"}, DNSNames: []string{"*.example.com"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(240 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must.Succeed(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// dump writes what both control planes sent for a world into the folder that OPENNESS_DUMP names, if it is set.
func dump(t *testing.T, w World, theirs, ours map[Proxy]trace.Config) {
	t.Helper()
	dir := os.Getenv("OPENNESS_DUMP")
	if dir == "" {
		return
	}
	dir = filepath.Join(dir, strings.ReplaceAll(w.Name, "/", "_"))
	for name, all := range map[string]map[Proxy]trace.Config{"istiod": theirs, "ours": ours} {
		for p, config := range all {
			at := filepath.Join(dir, name, string(p))
			must.Succeed(t, os.MkdirAll(at, 0o755))
			for url, list := range config {
				var out strings.Builder
				for _, r := range byName(list) {
					m, err := message(r)
					if err != nil {
						continue
					}
					fmt.Fprintf(&out, "# %s\n%s\n", r.Name, prototext.MarshalOptions{Multiline: true}.Format(m))
				}
				must.Succeed(t, os.WriteFile(filepath.Join(at, url[strings.LastIndexByte(url, '.')+1:]), []byte(out.String()), 0o644))
			}
		}
	}
}
