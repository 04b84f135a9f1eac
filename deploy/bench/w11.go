package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
)

// reviews is W11.
type reviews struct{}

// How it is measured.
const (
	reviewers   = 8
	reviewCount = 1000
	warmReviews = 100 // that are not measured: the first of each kind cost more
)

func (reviews) name() string { return "W11" }
func (reviews) needs() needs { return needs{delta: true} }

func (reviews) about(options) string {
	return fmt.Sprintf("The validating webhook is asked %d times about objects of four kinds, every other one invalid, by %d clients at a time over one connection or a few. Each answer is compared "+
		"with what it should be.", reviewCount, reviewers)
}

func (reviews) rows() []row {
	return []row{
		{name: "CPU a review", unit: "ms", ratio: map[mode]float64{delta: 3}},
		{name: "reviews a second", informative: true},
		{name: "p99", unit: "ms"},
	}
}

// reviewed is what is reviewed: the spec of each kind, valid and not.
var reviewed = []struct{ apiVersion, kind, valid, invalid string }{
	{
		"networking.istio.io/v1", "VirtualService",
		`{"hosts":["a.example.com"],"http":[{"match":[{"uri":{"prefix":"/a"}}],"route":[{"destination":{"host":"a.b.svc.cluster.local","subset":"v1"},"weight":90},{"destination":{"host":"a.b.svc.cluster.local","subset":"v2"},"weight":10}]},{"route":[{"destination":{"host":"a.b.svc.cluster.local"}}],"timeout":"5s","retries":{"attempts":3,"perTryTimeout":"2s"}}]}`,
		`{"hosts":["a.example.com"],"http":[{"match":[{"uri":{"regex":"("}}],"route":[{"destination":{"host":"a.b.svc.cluster.local"}}]}]}`,
	},
	{
		"networking.istio.io/v1", "DestinationRule",
		`{"host":"a.b.svc.cluster.local","trafficPolicy":{"loadBalancer":{"simple":"ROUND_ROBIN"},"outlierDetection":{"consecutive5xxErrors":5,"interval":"10s"}},"subsets":[{"name":"v1","labels":{"version":"v1"}},{"name":"v2","labels":{"version":"v2"}}]}`,
		`{"host":"a.b.svc.cluster.local","subsets":[{"name":"","labels":{"version":"v1"}}]}`,
	},
	{
		"networking.istio.io/v1", "Gateway",
		`{"selector":{"istio":"ingressgateway"},"servers":[{"port":{"number":443,"name":"https","protocol":"HTTPS"},"hosts":["*.example.com"],"tls":{"mode":"SIMPLE","credentialName":"www"}}]}`,
		`{"selector":{"istio":"ingressgateway"},"servers":[]}`,
	},
	{
		"security.istio.io/v1", "AuthorizationPolicy",
		`{"selector":{"matchLabels":{"app":"a"}},"action":"ALLOW","rules":[{"from":[{"source":{"principals":["cluster.local/ns/a/sa/b"]}}],"to":[{"operation":{"methods":["GET"],"paths":["/a/*"]}}]}]}`,
		`{"action":"DENY","rules":[{"from":[{"source":{}}]}]}`,
	},
}

// questions returns what the webhook is asked, and whether each is to be allowed.
func questions() (bodies [][]byte, allowed []bool, err error) {
	for i, o := range reviewed {
		for _, valid := range []bool{true, false} {
			spec := o.invalid
			if valid {
				spec = o.valid
			}
			body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
				"uid": fmt.Sprint("u-", i), "operation": "CREATE", "kind": map[string]string{"kind": o.kind}, "object": map[string]any{
					"apiVersion": o.apiVersion, "kind": o.kind, "metadata": map[string]string{"name": "o", "namespace": "b"}, "spec": json.RawMessage(spec),
				},
			}})
			if err != nil {
				return nil, nil, err
			}
			bodies, allowed = append(bodies, body), append(allowed, valid)
		}
	}
	return bodies, allowed, nil
}

func (reviews) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	bodies, allowed, err := questions()
	if err != nil {
		return nil, err
	}
	// Whom it calls is not what is measured.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: reviewers} //nolint:gosec
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func(i int) error {
		at := i % len(bodies)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.https+"/validate", bytes.NewReader(bodies[at]))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || answer.Response.Allowed != allowed[at] {
			return fmt.Errorf("%s: %s, %s, where allowed should be %v", bodies[at], resp.Status, text, allowed[at])
		}
		return nil
	}
	all := func(n int, took func(time.Duration)) error {
		var g errgroup.Group
		g.SetLimit(reviewers)
		for i := range n {
			g.Go(func() error {
				began := time.Now()
				err := ask(i)
				took(time.Since(began))
				return err
			})
		}
		return g.Wait()
	}
	if err := all(warmReviews, func(time.Duration) {}); err != nil {
		return nil, err
	}
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var times []time.Duration
	start := time.Now()
	err = all(reviewCount, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, d)
	})
	if err != nil {
		return nil, err
	}
	length := time.Since(start)
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	return figures{
		"CPU a review":     ms(after.cpu-before.cpu) / reviewCount,
		"reviews a second": reviewCount / length.Seconds(),
		"p99":              ms(percentile(times, 0.99)),
	}, nil
}
