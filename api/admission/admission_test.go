package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const group = "admission.k8s.io/"

// asking returns an AdmissionReview about an object.
func asking(version, object string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"AdmissionReview","request":{"uid":"u-1","operation":"CREATE","object":%s}}`,
		group+version, object)
}

// serve starts a server of a Gate.
func serve(t *testing.T, l limits.Limits, review admission.Reviewer, refused func(int)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(admission.NewGate(l, nil).Handler(review, refused))
	t.Cleanup(s.Close)
	return s
}

func allow(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return admission.Allow()
}

// memory is a network in memory with one server, for tests in which time is not real.
type memory struct{ conns chan net.Conn }

// remote is the server's end of a connection from an address.
type remote struct {
	net.Conn
	from string
}

func (r remote) RemoteAddr() net.Addr { return r }
func (remote) Network() string        { return "tcp" }
func (r remote) String() string       { return r.from }

func (m memory) Addr() net.Addr { return remote{from: "127.0.0.1:443"} }
func (m memory) Close() error   { close(m.conns); return nil }
func (m memory) Accept() (net.Conn, error) {
	if c, ok := <-m.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// dial connects from an address.
func (m memory) dial(from string) net.Conn {
	near, far := net.Pipe()
	m.conns <- remote{far, from}
	return near
}

// serveInMemory starts a server of a handler until the test ends. client is one whose address is 127.0.0.1.
func serveInMemory(t *testing.T, h http.Handler) (m memory, client *http.Client) {
	t.Helper()
	m = memory{make(chan net.Conn)}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	go func() { _ = s.Serve(m) }()
	t.Cleanup(func() {
		must.Succeed(t, s.Close())
		time.Sleep(time.Minute) // Connections linger.
	})
	return m, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return m.dial("127.0.0.1:1"), nil },
	}}
}

// post returns the status and the body of an answer.
func post(t *testing.T, url string, body io.Reader, change func(*http.Request)) (int, string) {
	t.Helper()
	return postBy(t, http.DefaultClient, url, body, change)
}

// postBy is post for a client.
func postBy(t *testing.T, client *http.Client, url string, body io.Reader, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	resp, err := client.Do(r)
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(text)
}

// ask returns what a handler answers to a client at an address.
func ask(t *testing.T, h http.Handler, from, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestReviews answers with the version and the UID of the request.
func TestReviews(t *testing.T) {
	s := serve(t, limits.Default(), func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if string(r.Object.Raw) == "1" {
			a := admission.Allow()
			a.Warnings = []string{"w"}
			return a
		}
		return admission.Deny("no")
	}, nil)
	for _, version := range []string{"v1", "v1beta1"} {
		for object, want := range map[string]string{
			"1": `"response":{"uid":"u-1","allowed":true,"warnings":["w"]}}`,
			"2": `"response":{"uid":"u-1","allowed":false,"status":{"metadata":{},"message":"no"}}}`,
		} {
			want = `{"kind":"AdmissionReview","apiVersion":"` + group + version + `",` + want
			if code, text := post(t, s.URL, strings.NewReader(asking(version, object)), nil); code != http.StatusOK || text != want {
				t.Errorf("%d, %s: want %s", code, text, want)
			}
		}
	}
}

// TestNoReviews refuses what is no review, each with its status, and says so.
func TestNoReviews(t *testing.T) {
	l := limits.Default()
	l.WebhookBody = 1 << 20
	var refused atomic.Int64
	s := serve(t, l, func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		t.Errorf("%s is reviewed", r.Object.Raw)
		return admission.Allow()
	}, func(status int) { refused.Store(int64(status)) })
	typed := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", value) }
	}
	large := strings.Repeat(" ", 1<<20) + "{}"
	for what, c := range map[string]struct {
		status int
		body   string
		change func(*http.Request)
	}{
		"empty":      {http.StatusBadRequest, "", nil},
		"empty, GET": {http.StatusBadRequest, "", func(r *http.Request) { r.Method = http.MethodGet }},
		"empty, in chunks": {http.StatusBadRequest, "",
			func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), -1 }},
		"no JSON":         {http.StatusBadRequest, "hello", nil},
		"another type":    {http.StatusBadRequest, "[]", nil},
		"null":            {http.StatusBadRequest, "null", nil},
		"no request":      {http.StatusBadRequest, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, nil},
		"another version": {http.StatusBadRequest, asking("v2", "1"), nil},
		"another kind":    {http.StatusBadRequest, `{"apiVersion":"v1","kind":"Pod"}`, nil},
		"deep":            {http.StatusBadRequest, asking("v1", strings.Repeat(`{"a":`, 10_001)+"1"+strings.Repeat("}", 10_001)), nil},
		"no media type":   {http.StatusUnsupportedMediaType, asking("v1", "1"), typed("")},
		"text":            {http.StatusUnsupportedMediaType, asking("v1", "1"), typed("text/plain")},
		"compressed": {http.StatusUnsupportedMediaType, asking("v1", "1"),
			func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
		"too large":          {http.StatusRequestEntityTooLarge, large, nil},
		"too large, chunked": {http.StatusRequestEntityTooLarge, large, func(r *http.Request) { r.ContentLength = -1 }},
	} {
		refused.Store(0)
		code, text := post(t, s.URL, strings.NewReader(c.body), c.change)
		if code != c.status || refused.Load() != int64(c.status) || len(text) > 400 {
			t.Errorf("%s: %d, %d heard, %.500s: want %d", what, code, refused.Load(), text, c.status)
		}
	}
}

// TestSlowBody cuts a client that sends too slowly, while others are answered.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Default()
		l.WebhookRead = 300 * time.Millisecond
		l.WebhookBodies = 4 << 20
		m, client := serveInMemory(t, admission.NewGate(l, nil).Handler(allow, nil))
		began := time.Now()
		var slow []net.Conn
		for _, size := range []int{1 << 18, 1 << 18, 6 << 20} {
			conn := m.dial("127.0.0.1:1")
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", size)
			slow = append(slow, conn)
		}
		for range 10 {
			if code, text := postBy(t, client, "http://a/", strings.NewReader(asking("v1", "1")), nil); code != http.StatusOK {
				t.Errorf("%d, %s", code, text)
			}
		}
		for _, conn := range slow {
			text := make([]byte, 13)
			if _, err := io.ReadFull(conn, text); err != nil || string(text) != "HTTP/1.1 408 " {
				t.Errorf("%q, %v", text, err)
			}
			if after := time.Since(began); after != l.WebhookRead {
				t.Errorf("cut after %s", after)
			}
		}
	})
}

// TestLongReview: a review may take longer than a body may take to arrive.
func TestLongReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Default()
		_, client := serveInMemory(t, admission.NewGate(l, nil).Handler(func(r *http.Request,
			_ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			select {
			case <-r.Context().Done():
				return admission.Deny("given up")
			case <-time.After(2 * l.WebhookRead):
				return admission.Allow()
			}
		}, nil))
		code, text := postBy(t, client, "http://a/", strings.NewReader(asking("v1", "1")), nil)
		if code != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
			t.Errorf("%d, %s", code, text)
		}
	})
}

// TestHoldUp answers an API server while others, from one address or from many, announce bodies and send none.
func TestHoldUp(t *testing.T) {
	for what, addresses := range map[string]int{"one address": 1, "many addresses": 40} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testHoldUp(t, addresses) }) })
	}
}

func testHoldUp(t *testing.T, addresses int) {
	l := limits.Default()
	l.WebhookRead = time.Hour
	m, client := serveInMemory(t, admission.NewGate(l, nil).Handler(allow, nil))
	for i := range 120 {
		length := "Content-Length: 262144"
		if i%3 == 0 {
			length = "Transfer-Encoding: chunked"
		}
		conn := m.dial(fmt.Sprintf("127.0.0.%d:1", 2+i%addresses))
		defer conn.Close()
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n\r\n", length)
	}
	synctest.Wait() // each has its memory, or waits for it
	for _, size := range []int{1, 300 << 10} {
		code, text := postBy(t, client, "http://a/", strings.NewReader(asking("v1", `"`+strings.Repeat("a", size)+`"`)), nil)
		if code != http.StatusOK {
			t.Errorf("%d, %s", code, text)
		}
	}
}

// TestReviewsOfOneAddress leaves room for the reviews of others.
func TestReviewsOfOneAddress(t *testing.T) {
	l := limits.Default()
	l.ReviewWait = time.Minute
	running, end := make(chan bool), make(chan bool)
	answer := admission.NewGate(l, nil).Handler(func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.RemoteAddr == "10.0.0.1:1" {
			running <- true
			<-end
		}
		return admission.Allow()
	}, nil)
	review := func(from string) int { return ask(t, answer, from, asking("v1", "1")).Code }
	var flood sync.WaitGroup
	for range l.Reviews {
		flood.Go(func() { review("10.0.0.1:1") })
	}
	for range l.Reviews * 3 / 4 {
		<-running
	}
	for range 3 {
		if code := review("10.0.0.2:1"); code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
	close(end)
	for range l.Reviews - l.Reviews*3/4 {
		<-running
	}
	flood.Wait()
}

// TestReviewsOfStrangers checks that where API servers are known another address has a tenth of the reviews, that all
// other addresses together leave room for the API servers, and that an API server may have all that are free.
func TestReviewsOfStrangers(t *testing.T) {
	l := limits.Default()
	l.ReviewWait = time.Minute
	var running sync.Map // of counts, by address
	entered, end := make(chan string), make(chan struct{})
	count := func(from string) *atomic.Int64 {
		n, _ := running.LoadOrStore(from, &atomic.Int64{})
		return n.(*atomic.Int64)
	}
	answer := admission.NewGate(l, func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.9")} }).Handler(
		func(r *http.Request, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if string(request.Object.Raw) == "1" {
				count(r.RemoteAddr).Add(1)
				entered <- r.RemoteAddr
				<-end
				count(r.RemoteAddr).Add(-1)
			}
			return admission.Allow()
		}, nil)
	var all sync.WaitGroup
	review := func(from, object string) int { return ask(t, answer, from, asking("v1", object)).Code }
	for i := range 10 {
		for range 3 {
			all.Go(func() { review(fmt.Sprintf("10.0.1.%d:1", i), "1") })
		}
	}
	seen := map[string]bool{}
	for range l.Reviews * 3 / 4 {
		seen[<-entered] = true
	}
	if len(seen) != l.Reviews*3/4 {
		t.Errorf("reviews of %d other addresses at a time", len(seen))
	}
	for range 3 {
		if code := review("10.0.0.9:1", "2"); code != http.StatusOK {
			t.Errorf("a review for the API server: %d", code)
		}
	}
	close(end)
	for range 30 - l.Reviews*3/4 {
		<-entered
	}
	all.Wait()
	end = make(chan struct{})
	for range l.Reviews {
		all.Go(func() { review("10.0.0.9:1", "1") })
	}
	for range l.Reviews {
		<-entered
	}
	if n := count("10.0.0.9:1").Load(); n != int64(l.Reviews) {
		t.Errorf("%d reviews for the API server at a time", n)
	}
	close(end)
	all.Wait()
}

// TestReviewsAtOnce bounds how many reviews run at a time and how much they review.
func TestReviewsAtOnce(t *testing.T) {
	l := limits.Default()
	l.Reviews, l.ReviewedBytes, l.ReviewWait = 3, 10_000, time.Hour
	var mu sync.Mutex
	running, bytesNow, most, mostBytes := 0, 0, 0, 0
	enter, leave := make(chan bool), make(chan bool)
	s := serve(t, l, func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		n := len(r.Object.Raw)
		mu.Lock()
		running, bytesNow = running+1, bytesNow+n
		most, mostBytes = max(most, running), max(mostBytes, bytesNow)
		mu.Unlock()
		enter <- true
		<-leave
		mu.Lock()
		running, bytesNow = running-1, bytesNow-n
		mu.Unlock()
		return admission.Allow()
	}, nil)
	var clients sync.WaitGroup
	send := func(n, want int) {
		clients.Go(func() {
			if code, text := post(t, s.URL, strings.NewReader(asking("v1", `"`+strings.Repeat("a", n)+`"`)), nil); code != want {
				t.Errorf("%d, %s: want %d", code, text, want)
			}
		})
	}
	for range 12 {
		send(10, http.StatusOK)
	}
	for range 4 {
		send(8000, http.StatusOK)
	}
	send(50_000, http.StatusOK) // larger than all together: alone
	for range 17 {
		<-enter
		leave <- true
	}
	clients.Wait()
	if most > 3 || mostBytes > 50_002 {
		t.Errorf("%d reviews of %d bytes at once", most, mostBytes)
	}
}

// TestReviewsWaitNoLonger: a review that waits for others for too long gets 429.
func TestReviewsWaitNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Default()
		l.Reviews = 3
		leave := make(chan bool)
		h := admission.NewGate(l, nil).Handler(func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			<-leave
			return admission.Allow()
		}, nil)
		var clients sync.WaitGroup
		for range 3 {
			clients.Go(func() { ask(t, h, "127.0.0.1:1", asking("v1", "1")) })
		}
		synctest.Wait()
		began := time.Now()
		if code := ask(t, h, "127.0.0.1:1", asking("v1", "1")).Code; code != http.StatusTooManyRequests || time.Since(began) != l.ReviewWait {
			t.Errorf("%d after %s", code, time.Since(began))
		}
		close(leave)
		clients.Wait()
	})
}

// TestMemory keeps what a flood of the largest bodies costs within bounds.
func TestMemory(t *testing.T) {
	l := limits.Default()
	var most atomic.Uint64
	gate := admission.NewGate(l, nil)
	h := gate.Handler(func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		most.Store(max(most.Load(), now.HeapAlloc))
		return admission.Allow()
	}, nil)
	body := asking("v1", `"`+strings.Repeat("a", int(l.WebhookBody)-1000)+`"`)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() { ask(t, h, "10.0.0.1:1", body) })
	}
	clients.Wait()
	if grown := int64(most.Load()) - int64(before.HeapAlloc); most.Load() == 0 || grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// FuzzReview answers whatever is sent, and echoes the UID of what it reviews.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{asking("v1", "1"), asking("v1beta1", `{"a":1}`), "null", "[]",
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":1}}`} {
		f.Add([]byte(seed))
	}
	gate := admission.NewGate(limits.Default(), nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		var uid string
		h := gate.Handler(func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			uid = string(r.UID)
			return admission.Deny("no")
		}, nil)
		w := ask(t, h, "10.0.0.1:1", string(body))
		if w.Code == http.StatusBadRequest {
			return
		}
		var answer admissionv1.AdmissionReview
		err := json.Unmarshal(w.Body.Bytes(), &answer)
		if err != nil || w.Code != http.StatusOK || answer.Response.Allowed || string(answer.Response.UID) != uid {
			t.Errorf("%d, %s, %v", w.Code, w.Body, err)
		}
	})
}
