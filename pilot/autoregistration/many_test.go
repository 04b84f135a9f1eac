package autoregistration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// apiServer is a fake API server for WorkloadEntries with a delay. It counts requests by verb.
type apiServer struct {
	latency time.Duration

	mu       sync.Mutex
	objects  map[string]map[string]any // by path
	writes   int
	requests map[string]int
	down     bool
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.latency)
	s.mu.Lock()
	defer s.mu.Unlock()
	name, isStatus := strings.CutSuffix(r.URL.Path, "/status")
	verb := r.Method
	if isStatus {
		verb = "STATUS"
	}
	s.requests[verb]++
	body := map[string]any{}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
	}
	if r.Method == http.MethodPost {
		name = path.Join(name, body["metadata"].(map[string]any)["name"].(string))
	}
	code, answer := s.answer(r.Method, name, body)
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text))}, nil
}

func (s *apiServer) answer(method, name string, body map[string]any) (int, any) {
	failure := func(code int, reason metav1.StatusReason) (int, any) {
		return code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason,
			Code: int32(code)}
	}
	o := s.objects[name]
	switch {
	case s.down:
		return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case o == nil && method != http.MethodPost:
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case o != nil && method == http.MethodPost:
		return failure(http.StatusConflict, metav1.StatusReasonAlreadyExists)
	case method == http.MethodPatch && other(o, body["metadata"]), method == http.MethodDelete && other(o, body["preconditions"]):
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	case method == http.MethodDelete:
		delete(s.objects, name)
		return http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}
	}
	if method != http.MethodGet {
		s.writes++
		o = merged(o, body)
		meta := o["metadata"].(map[string]any)
		meta["resourceVersion"], meta["uid"] = strconv.Itoa(s.writes), "uid-"+path.Base(name)
		s.objects[name] = o
	}
	return http.StatusOK, o
}

// other reports whether an object differs from the object, or the version, that a request names.
func other(o map[string]any, meant any) bool {
	is, want := o["metadata"].(map[string]any), meant.(map[string]any)
	return want["uid"] != is["uid"] || want["resourceVersion"] != nil && want["resourceVersion"] != is["resourceVersion"]
}

// merged is RFC 7396.
func merged(o, patch map[string]any) map[string]any {
	out := maps.Clone(o)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		if m, ok := v.(map[string]any); ok {
			was, _ := out[k].(map[string]any)
			out[k] = merged(was, m)
		} else if v == nil {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

// object is the view of the cluster, which is up to date.
func (s *apiServer) Object(k kinds.Key) *kinds.Object {
	if k == groupKey {
		return reviews()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects["/apis/networking.istio.io/v1/namespaces/"+k.Namespace+"/workloadentries/"+k.Name]
	if o == nil {
		return nil
	}
	out := &kinds.Object{Key: k, UID: o["metadata"].(map[string]any)["uid"].(string), Annotations: map[string]string{}}
	for name, v := range o["metadata"].(map[string]any)["annotations"].(map[string]any) {
		out.Annotations[name] = v.(string)
	}
	return out
}

// count returns the number of requests by verb, and resets it.
func (s *apiServer) count() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprint(s.requests)
	s.requests = map[string]int{}
	return text
}

func (s *apiServer) ObjectsOf(*kinds.Kind) []*kinds.Object { return nil }

// A thousand machines that connect at once are all registered by one request each, and none has to retry. The same
// holds when they report health, disconnect, and reconnect to a restarted server.
func TestAThousandMachinesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		api := &apiServer{latency: 30 * time.Millisecond, objects: map[string]map[string]any{}, requests: map[string]int{}}
		start := func(instance string) *replica {
			store, err := NewKubernetes(&rest.Config{Host: "http://api", Transport: api, QPS: 80, Burst: 160})
			must.Succeed(t, err)
			return newWorld().start(t, instance, func(o *Options) { o.Store, o.World = store, api })
		}
		machine := func(i int) xds.Client {
			return stream(fmt.Sprint(i), func(c *xds.Client) {
				c.Proxy.IPs, c.Proxy.ReadinessProbe = []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}, true
			})
		}
		all := func(f func(xds.Client) error) time.Duration {
			began := time.Now()
			var wait sync.WaitGroup
			for i := range n {
				wait.Go(func() {
					if err := f(machine(i)); err != nil {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
				})
			}
			wait.Wait()
			return time.Since(began)
		}
		a := start("a")
		connect := func(r *replica) func(xds.Client) error {
			return func(c xds.Client) error {
				err := r.Connected(t.Context(), c)
				if err == nil {
					r.Health(c, true, "")
				}
				return err
			}
		}
		t.Logf("registered and well after %v", all(connect(a)))
		time.Sleep(30 * time.Second)
		if got, want := api.count(), fmt.Sprintf("map[POST:%d STATUS:%d]", n, n); got != want {
			t.Errorf("to register and to say how they are: %s, want %s", got, want)
		}
		// Reports without news cause no writes. A change is written once, however often it flips.
		all(func(c xds.Client) error {
			for i := range 20 {
				a.Health(c, i%2 == 0, fmt.Sprint(i))
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
		if got, want := api.count(), fmt.Sprintf("map[STATUS:%d]", n); got != want {
			t.Errorf("health that flaps: %s, want %s", got, want)
		}
		// They move to another instance before the first has noticed. No entry is deleted and created again.
		t.Logf("at another instance after %v", all(connect(start("b"))))
		all(func(c xds.Client) error { a.Disconnected(c); return nil })
		time.Sleep(2 * time.Minute)
		if got := api.count(); strings.Contains(got, "POST") || !strings.Contains(got, fmt.Sprintf("GET:%d PATCH:%d STATUS:%d", n, 2*n, n)) {
			t.Errorf("to move: %s, want a patch by each instance, and that the first one learns of it", got)
		}
		if len(api.objects) != n {
			t.Errorf("%d entries", len(api.objects))
		}
		for name := range api.objects {
			o := api.Object(kinds.Key{Kind: kinds.WorkloadEntry, Namespace: "vm", Name: path.Base(name)})
			if o.Annotations[annotationController] != "b" || o.Annotations[annotationDisconnected] != "" {
				t.Fatalf("%s: %v", name, o.Annotations)
			}
		}

		// An API server that refuses writes delays no proxy.
		api.mu.Lock()
		api.down = true
		api.mu.Unlock()
		began := time.Now()
		late := stream("late", func(c *xds.Client) { c.Proxy.IPs = []string{"10.2.0.1"} })
		if err := a.Connected(t.Context(), late); status.Code(err) != codes.Unavailable || time.Since(began) > 11*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
