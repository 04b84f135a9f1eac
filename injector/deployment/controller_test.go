package deployment

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/injector"
)

// noConfigMaps is a source that has read all, and found none.
type noConfigMaps struct{ handler func([]kinds.Change) }

func (s noConfigMaps) Run(ctx context.Context) error {
	s.handler(nil)
	<-ctx.Done()
	return nil
}

func (noConfigMaps) Want([]kinds.Key)            {}
func (noConfigMaps) Missing() []kinds.Key        { return nil }
func (noConfigMaps) Findings() []diag.Diagnostic { return nil }

// TestVersionIsAskedForWithBackoff checks that an API server which does not tell its version is asked again, with
// longer pauses, however many changes there are.
func TestVersionIsAskedForWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := map[schema.GroupVersionResource]string{tags(): "MutatingWebhookConfigurationList"}
		for _, r := range resources() {
			lists[r.GroupVersionResource] = r.kind + "List"
		}
		front := &kinds.Object{
			Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "edge", Name: "front"}, UID: "1",
			Spec: &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
		}
		var asked, version atomic.Int64
		c := New(Options{
			Client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), Namespace: "istio-system", Deploy: true,
			Classes: Classes("istio"),
			Objects: func(k *kinds.Kind) []*kinds.Object {
				if k == kinds.KubeGateway {
					return []*kinds.Object{front}
				}
				return nil
			},
			Object: func(kinds.Key) *kinds.Object { return nil },
			Version: func(context.Context) (int, error) {
				if asked.Add(1); version.Load() == 0 {
					return 0, errors.New("503")
				}
				return int(version.Load()), nil
			},
			Render:     func(context.Context, string, injector.Gateway) ([]map[string]any, error) { return nil, nil },
			ConfigMaps: func(handler func([]kinds.Change)) (ConfigMaps, error) { return noConfigMaps{handler}, nil },
			Logger:     slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		for range 1000 { // 100 s
			c.Notice([]kinds.Change{{Key: front.Key, Object: front}})
			time.Sleep(100 * time.Millisecond)
		}
		if n := asked.Load(); n < 5 || n > 8 {
			t.Errorf("the version was asked for %d times", n)
		}
		version.Store(137)
		time.Sleep(look + time.Second)
		before := asked.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := asked.Load(); c.version != 137 || after != before {
			t.Errorf("version %d, asked for %d times more", c.version, after-before)
		}
	})
}
