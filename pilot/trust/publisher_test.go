package trust_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// source hands on what a test says.
type source struct{ handler config.Handler }

func (s *source) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func (s *source) Findings() []diag.Diagnostic { return nil }

// brings hands on that a ConfigMap has a text; empty: that it is gone.
func (s *source) brings(namespace, text string) {
	key := kinds.Key{Kind: kinds.ConfigMap, Namespace: namespace, Name: "roots"}
	if text == "" {
		s.handler([]kinds.Change{{Key: key}})
		return
	}
	o := &kinds.Object{Key: key, Labels: map[string]string{trust.Label: trust.LabelValue}, Spec: &corev1.ConfigMap{Data: map[string]string{"pem": text}}}
	s.handler([]kinds.Change{{Key: key, Object: o}})
}

// TestPublisher writes what is missing or differs, once, and what cannot be written holds up nothing and is tried
// again.
func TestPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var writes []string
		var meanwhile func() // called once, while something is written
		refused := map[string]error{
			"forbidden": errors.New("forbidden"),
			"gone":      apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone"),
		}
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if err := refused[a.GetNamespace()]; err != nil {
				return true, nil, err
			}
			writes = append(writes, a.GetVerb()+" "+a.GetNamespace())
			if meanwhile != nil {
				meanwhile()
				meanwhile = nil
			}
			return true, nil, nil
		})
		written := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(writes, want) {
				t.Errorf("%v: want %v", writes, want)
			}
			writes = nil
		}
		namespaces, text, s := []string{"a", "b", "forbidden", "gone", "z"}, "one", &source{}
		p := trust.New(trust.Options{
			Client: client, Logger: slog.New(slog.DiscardHandler),
			Source: func(h config.Handler) (config.Source, error) {
				s.handler = h
				return s, nil
			},
			Namespaces: func() []string { return namespaces },
			Wanted:     func() map[string]trust.Content { return map[string]trust.Content{"roots": {Key: "pem", Text: text}} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		written() // nobody knows yet what there is
		s.brings("b", "one")
		written("create a", "create z")
		findings := func(want string) {
			t.Helper()
			list := fmt.Sprint(p.Findings())
			if (want == "") != (len(p.Findings()) == 0) || !strings.Contains(list, want) {
				t.Errorf("%s: want %q", list, want)
			}
		}
		findings("ConfigMap forbidden/roots")
		p.Wake()
		written()
		s.brings("a", "edited")
		written("patch a")
		mu.Lock()
		meanwhile = func() { s.brings("a", "edited once more") }
		mu.Unlock()
		s.brings("a", "edited again")
		written("patch a", "patch a")
		s.brings("z", "")
		written("create z")
		mu.Lock()
		delete(refused, "forbidden")
		mu.Unlock()
		time.Sleep(6 * time.Second)
		written("create forbidden")
		findings("")
		text = "two"
		p.Wake()
		written("patch a", "patch b", "patch forbidden", "patch z")
		namespaces = []string{"a"}
		p.Wake()
		written()
		cancel()
		<-ended
	})
}
