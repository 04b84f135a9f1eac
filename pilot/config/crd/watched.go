package crd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Backoff after failures, with up to 100 % jitter. The end of an outage is noticed at most the longest backoff and a
// connection timeout later.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 4 * time.Second
)

// timeouts bound the silence of an API server.
type timeouts struct {
	finding time.Duration // until a missing response is a finding
	answer  time.Duration // until a request is repeated: as long as an API server itself allows
	silent  time.Duration // until a stream is given up: API servers send a bookmark every minute
}

func defaultTimeouts() timeouts {
	return timeouts{finding: 10 * time.Second, answer: time.Minute, silent: 150 * time.Second}
}

var errUnanswered = errors.New("it takes requests and does not answer")

// forbiddenPause is how often a kind is polled while definitions are forbidden.
const forbiddenPause = 30 * time.Second

// watched is a resource of the API server that is listed and watched into a store.
type watched struct {
	source    *Source
	group     string
	plural    string
	versions  []string // tried in this order
	selectors selectors
	protobuf  bool
	as        string // parameters of the requested media types
	item      itemFunc
	store     cache.ReflectorStore

	onForbidden func() // optional; called if the resource may not be read

	// onMissing is called if no version is served. It reports whether the API server is known not to have the kind.
	// Optional.
	onMissing func(context.Context) bool

	readError   error     // why the resource cannot be read; nil if it can; guarded by source.mu
	since       time.Time // begin of the failure
	absentSince time.Time // time since when no version is served, or zero
}

type selectors struct{ namespace, fields, labels string }

// run lists and watches until ctx ends.
func (w *watched) run(ctx context.Context) {
	version, pause := 0, wait.Backoff{Duration: retryFirst, Factor: 2, Steps: 10, Cap: retryMax, Jitter: 1}
	fresh := pause
	reflector, err := w.reflector(ctx, w.versions[version])
	for ctx.Err() == nil {
		began := time.Now()
		if err == nil {
			if panicked := safe.Do("crd "+w.plural, func() { err = reflector.ListAndWatchWithContext(ctx) }); panicked != nil {
				err = panicked
			}
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = fresh
		}
		delay := pause.Step()
		if apierrors.IsNotFound(err) {
			if version++; version < len(w.versions) {
				delay = 0
			} else {
				version = 0
				if w.onMissing == nil {
					w.failed(err)
				}
				if expected := w.onMissing != nil && w.onMissing(ctx); expected && w.definitionsForbidden() {
					delay = forbiddenPause + rand.N(forbiddenPause/3)
				}
			}
			reflector, err = w.reflector(ctx, w.versions[version])
		} else if err != nil {
			w.failed(err)
			err = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

func (w *watched) definitionsForbidden() bool {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	return w.source.definitions != nil && w.source.definitions.unreadable()
}

func (w *watched) reflector(ctx context.Context, version string) (*cache.Reflector, error) {
	client, err := w.client(version)
	if err != nil {
		return nil, err
	}
	request := func(o *metav1.ListOptions) *rest.Request {
		o.FieldSelector, o.LabelSelector = w.selectors.fields, w.selectors.labels
		// The backoff here sees every failure. By default a request would hide ten of them.
		return client.Get().MaxRetries(0).NamespaceIfScoped(
			w.selectors.namespace, w.selectors.namespace != "",
		).Resource(w.plural).VersionedParams(o, metav1.ParameterCodec)
	}
	return cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			result := request(&o).Timeout(w.source.timeouts.answer).Do(ctx)
			if err := result.Error(); err != nil { // other than Raw, it reads the API server's own words
				if errors.Is(err, context.DeadlineExceeded) { // unlike Raw, it decodes the API server's message
					err = errUnanswered
				}
				return nil, err
			}
			data, err := result.Raw()
			if err != nil {
				return nil, err
			}
			return readList(data, w.item)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return w.watch(ctx, request(&o))
		},
	}, nil, w.store, cache.ReflectorOptions{
		Name: "crd", TypeDescription: w.plural, Clock: contextClock{clock.RealClock{}, ctx},
		Backoff: &wait.Backoff{Duration: retryFirst, Factor: 2, Steps: 10, Cap: retryMax, Jitter: 1},
	}), nil
}

// watch opens a stream. Pings detect a broken connection, but not an API server or proxy that keeps the connection
// alive and sends nothing. Timeouts do.
func (w *watched) watch(ctx context.Context, request *rest.Request) (watch.Interface, error) {
	asking, giveUp := context.WithCancel(ctx)
	asked, answered := time.Now(), false // answered is guarded by source.mu
	report := time.AfterFunc(w.source.timeouts.finding, func() {
		w.source.mu.Lock()
		defer w.source.mu.Unlock()
		if !answered {
			w.setReadError(errUnanswered, asked)
		}
	})
	late := time.AfterFunc(w.source.timeouts.answer, giveUp)
	body, err := request.Stream(asking)
	report.Stop()
	late.Stop()
	w.source.mu.Lock()
	answered = true
	w.source.mu.Unlock()
	if err != nil {
		if asking.Err() != nil && ctx.Err() == nil {
			err = errUnanswered
		}
		giveUp()
		if ctx.Err() == nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
			w.failed(err) // the reflector retries these errors itself and returns others
		}
		return nil, err
	}
	w.answered()
	return w.newStream(body, w.source.timeouts.silent, giveUp), nil
}

func (w *watched) client(version string) (*rest.RESTClient, error) {
	gv := schema.GroupVersion{Group: w.group, Version: version}
	c := rest.CopyConfig(w.source.opts.Client)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if w.group == "" {
		c.APIPath = "/api"
	}
	scheme := runtime.NewScheme()

	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for what is wrong with a request; all else is decoded here
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.AcceptContentTypes = runtime.ContentTypeJSON + w.as
	if w.protobuf {
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + w.as + "," + c.AcceptContentTypes
	}
	c.ContentType, c.RateLimiter = runtime.ContentTypeJSON, w.source.limiter
	return rest.RESTClientForConfigAndClient(c, w.source.http)
}

// failed records why the resource cannot be read. Its objects stay in force.
func (w *watched) failed(err error) {
	s := w.source
	s.mu.Lock()
	w.setReadError(err, time.Now())
	s.mu.Unlock()
	if apierrors.IsForbidden(err) && w.onForbidden != nil {
		w.onForbidden()
	}
}

// setReadError records an error, and its begin unless an earlier error persists. The caller holds source.mu.
func (w *watched) setReadError(err error, since time.Time) {
	if w.readError == nil {
		w.since = since
		w.source.metrics.count(w.plural, 0, 1)
	}
	w.readError = err
	w.source.metrics.errors.Inc()
	w.source.wake()
}

// answered records that the API server has accepted a watch.
func (w *watched) answered() {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.recovered()
	w.absentSince = time.Time{}
	w.source.wake()
}

// recovered clears the error. The caller holds source.mu.
func (w *watched) recovered() {
	if w.readError != nil {
		w.source.metrics.count(w.plural, 0, -1)
	}
	w.readError = nil
}

// absent reports whether no version is served. The caller holds source.mu.
func (w *watched) absent() bool { return !w.absentSince.IsZero() }

func (w *watched) absentFor() time.Duration { return time.Since(w.absentSince) }

// contextClock is a clock whose waits end with ctx, which a reflector does not check.
type contextClock struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that receives after d, or when ctx ends.
func (c contextClock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 2)
	fire := func() { out <- time.Now() }
	stop := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		stop()
		fire()
	})
	return out
}
