package crd

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func event(kind string, object []byte) []byte {
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), object)
	out := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), kind)
	return frame(protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType), raw))
}

func marshal(t testing.TB, m interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	out, err := m.Marshal()
	must.Succeed(t, err)
	return out
}

// follow returns the events of a stream until it ends.
func follow(body []byte, f itemFunc) []watch.Event {
	s := (&watched{source: &Source{opts: Options{Logger: slog.New(slog.DiscardHandler)}}, item: f}).newStream(
		io.NopCloser(bytes.NewReader(body)), time.Hour, func() {},
	)
	defer s.Stop()
	var out []watch.Event
	for e := range s.ResultChan() {
		out = append(out, e)
	}
	return out
}

func TestStreamEvents(t *testing.T) {
	feed := newFeed(&Source{seed: maphash.MakeSeed()}, kinds.ConfigMap, Restriction{})
	object := envelope("ConfigMap", marshal(
		t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", ResourceVersion: "7"}, Data: map[string]string{"k": "v"}},
	))
	gone := statusOf(410, metav1.StatusReasonExpired, "too old")
	good := event("ADDED", object)
	huge := []byte{0x7f, 0xff, 0xff, 0xff}
	for name, c := range map[string]struct {
		body  string
		f     itemFunc
		added int
		err   string // of the last event; empty: there is none
	}{
		"empty":           {"", feed.item, 0, ""},
		"one":             {string(good), feed.item, 1, ""},
		"several":         {strings.Repeat(string(good), 5), feed.item, 5, ""},
		"cut in an event": {string(good) + string(good[:9]), feed.item, 1, ""},
		"cut in a length": {string(good) + "\x00\x00", feed.item, 1, ""},
		"ended by server": {string(good) + string(event("ERROR", envelope("Status", marshal(t, gone)))) + string(good), feed.item, 2, "too old"},
		"too large":       {string(good) + string(huge) + string(good), feed.item, 1, "more than"},
		"not protobuf":    {string(good) + string(frame([]byte{0xff, 0xff})) + string(good), feed.item, 1, "decode protobuf"},
		"a panic":         {string(good), func([]byte, bool) (*item, error) { panic("boom") }, 0, "boom"},
		"a fault":         {string(good), func([]byte, bool) (*item, error) { return nil, errors.New("odd") }, 0, "odd"},
		"JSON": {
			`{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"data":{"k":"v"}}}` + "\n", feed.item, 1,
			"",
		},
		"JSON and an end": {
			`{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","code":410,"reason":"Expired"}}`, feed.item, 0,
			"too old",
		},
		"JSON cut":         {`{"type":"ADDED","obj`, feed.item, 0, ""},
		"broken JSON":      {`{"type":"ADDED","object":[}`, feed.item, 0, "invalid character"},
		"JSON but no such": {`{"type":"ADDED","object":7}`, feed.item, 0, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			events := follow([]byte(c.body), c.f)
			added, err := 0, ""
			for _, e := range events {
				switch e.Type {
				case watch.Added:
					added++
					it := e.Object.(*item)
					if it.GetName() != "a" || it.GetNamespace() != "b" || it.GetResourceVersion() != "7" {
						t.Errorf("got %+v", it)
					}
				case watch.Error:
					err = e.Object.(*metav1.Status).Message
				}
			}
			if added != c.added || (err == "") != (c.err == "") || !strings.Contains(err, c.err) {
				t.Errorf("%d objects and %q", added, err)
			}
		})
	}
}

func FuzzStream(f *testing.F) {
	object := envelope("Pod", marshal(f, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "p"}}}}},
	}))
	f.Add(event("ADDED", object))
	f.Add(event("ERROR", envelope("Status", nil)))
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`))
	feed := newFeed(&Source{seed: maphash.MakeSeed()}, kinds.Pod, Restriction{})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, e := range follow(body, feed.item) {
			if it, ok := e.Object.(*item); ok && it.data != nil {
				_, _ = feed.object(it) // may fail, must not panic
			}
			if s, ok := e.Object.(*metav1.Status); ok && strings.Contains(s.Message, "panic") {
				t.Error(s.Message)
			}
		}
	})
}

// A stream on which nothing comes any more is ended, and that is no error.
func TestSilentStream(t *testing.T) {
	body, _ := io.Pipe()
	ended := make(chan struct{})
	s := (&watched{source: &Source{opts: Options{Logger: slog.New(slog.DiscardHandler)}}}).newStream(
		body, time.Millisecond, func() { close(ended) },
	)
	for e := range s.ResultChan() {
		t.Errorf("got %v", e)
	}
	<-ended
}
