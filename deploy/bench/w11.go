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

// reviews is W11, or W11b with injection.
type reviews struct{ injection bool }

// Settings of the measurement.
const (
	reviewers   = 8
	reviewCount = 1000
	warmReviews = 100 // reviews that are not measured, because the first of each kind cost more
)

func (r reviews) name() string {
	if r.injection {
		return "W11b"
	}
	return "W11"
}

func (r reviews) needs() needs {
	n := needs{delta: true, injection: r.injection}
	if r.injection {
		n.scene = withTemplates
	}
	return n
}

func (r reviews) about(options) string {
	asked := "The validating webhook is asked %d times about objects of four kinds, every other one invalid, by %d clients at a time over " +
		"one connection or a few."
	if r.injection {
		asked = "The injection webhook is asked %d times about pods, as a rollout makes them: three of each Deployment, and of ten Deployments " +
			"one asks for no proxy and one has an annotation that is wrong. " +
			"There are %d clients at a time, over one connection or a few. Both servers have the templates of this tree's chart."
	}
	return fmt.Sprintf(asked+" Each answer is compared with what it should be.", reviewCount, reviewers)
}

func (reviews) rows() []row {
	return []row{
		{name: "CPU a review", unit: "ms", ratio: map[mode]float64{delta: 3}},
		{name: "reviews a second", informative: true},
		{name: "p99", unit: "ms"},
	}
}

// reviewed lists a valid and an invalid spec of each kind.
var reviewed = []struct{ apiVersion, kind, valid, invalid string }{
	{
		"networking.istio.io/v1", "VirtualService",
		`{"hosts":["a.example.com"],"http":[{"match":[{"uri":{"prefix":"/a"}}],"route":[{"destination":{"host":"a.b.svc.cluster.local",` +
			`"subset":"v1"},"weight":90},{"destination":{"host":"a.b.svc.cluster.local","subset":"v2"},"weight":10}]},` +
			`{"route":[{"destination":{"host":"a.b.svc.cluster.local"}}],"timeout":"5s","retries":{"attempts":3,"perTryTimeout":"2s"}}]}`,
		`{"hosts":["a.example.com"],"http":[{"match":[{"uri":{"regex":"("}}],"route":[{"destination":{"host":"a.b.svc.cluster.local"}}]}]}`,
	},
	{
		"networking.istio.io/v1", "DestinationRule",
		`{"host":"a.b.svc.cluster.local","trafficPolicy":{"loadBalancer":{"simple":"ROUND_ROBIN"},"outlierDetection":{"consecutive5xxErrors":5,` +
			`"interval":"10s"}},"subsets":[{"name":"v1","labels":{"version":"v1"}},{"name":"v2","labels":{"version":"v2"}}]}`,
		`{"host":"a.b.svc.cluster.local","subsets":[{"name":"","labels":{"version":"v1"}}]}`,
	},
	{
		"networking.istio.io/v1", "Gateway",
		`{"selector":{"istio":"ingressgateway"},"servers":[{"port":{"number":443,"name":"https","protocol":"HTTPS"},"hosts":["*.example.com"],` +
			`"tls":{"mode":"SIMPLE","credentialName":"www"}}]}`,
		`{"selector":{"istio":"ingressgateway"},"servers":[]}`,
	},
	{
		"security.istio.io/v1", "AuthorizationPolicy",
		`{"selector":{"matchLabels":{"app":"a"}},"action":"ALLOW","rules":[{"from":[{"source":{"principals":["cluster.local/ns/a/sa/b"]}}],` +
			`"to":[{"operation":{"methods":["GET"],"paths":["/a/*"]}}]}]}`,
		`{"action":"DENY","rules":[{"from":[{"source":{}}]}]}`,
	},
}

// question is a request to a webhook with its expected answer.
type question struct {
	body    []byte
	allowed bool
	patched bool
}

// review returns an AdmissionReview of the creation of an object.
func review(uid, namespace, kind string, object any) ([]byte, error) {
	return json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
		"uid": uid, "operation": "CREATE", "namespace": namespace, "kind": map[string]string{"kind": kind}, "object": object,
	}})
}

// validations returns the requests with the reviewed specs.
func validations() (list []question, err error) {
	for i, o := range reviewed {
		for _, valid := range []bool{true, false} {
			spec := o.invalid
			if valid {
				spec = o.valid
			}
			body, err := review(fmt.Sprint("u-", i), "b", o.kind, map[string]any{
				"apiVersion": o.apiVersion, "kind": o.kind, "metadata": map[string]string{"name": "o", "namespace": "b"}, "spec": json.RawMessage(spec),
			})
			if err != nil {
				return nil, err
			}
			list = append(list, question{body: body, allowed: valid})
		}
	}
	return list, nil
}

// injectedPod is a pod in an admission request. %[1]s is its Deployment, %[2]s a random part of its name, %[3]s an
// extra label and %[4]s an extra annotation.
const injectedPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"%[1]s-7d9c5b6f4-","namespace":"shop",
"creationTimestamp":null,
"labels":{"app":"%[1]s","version":"v1","app.kubernetes.io/name":"%[1]s","pod-template-hash":"7d9c5b6f4"%[3]s},
"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"8080"%[4]s},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%[1]s-7d9c5b6f4","uid":"8f3c6c0e-5a53-4f86-9d57-5f6f2a5a7a11",
"controller":true,"blockOwnerDeletion":true}],
"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z",
"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/scrape":{}},"f:generateName":{},
"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},
"k:{\"uid\":\"8f3c6c0e-5a53-4f86-9d57-5f6f2a5a7a11\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},
"f:imagePullPolicy":{},"f:name":{},"f:ports":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}}]},
"spec":{"volumes":[{"name":"config","configMap":{"name":"%[1]s","defaultMode":420}},{"name":"kube-api-access-%[2]s",
"projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt",
"items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1",
"fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],
"containers":[{"name":"app","image":"registry.example.com/team/%[1]s:1.2.3","args":["--config=/etc/app/config.yaml"],
"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"grpc","containerPort":9090,"protocol":"TCP"}],
"env":[{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}},{"name":"LEVEL","value":"info"},
{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"%[1]s","key":"password"}}}],
"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
"volumeMounts":[{"name":"config","mountPath":"/etc/app"},{"name":"kube-api-access-%[2]s","readOnly":true,
"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],
"livenessProbe":{"httpGet":{"path":"/live","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,
"failureThreshold":3},
"readinessProbe":{"httpGet":{"path":"/ready","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,
"failureThreshold":3},
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"%[1]s",
"serviceAccount":"%[1]s","securityContext":{},"schedulerName":"default-scheduler",
"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}`

// injections returns the requests with pods. No two pods are alike.
func injections() (list []question, err error) {
	const replicas = 3
	for i := range reviewCount + warmReviews {
		deployment := i / replicas
		label, annotation := "", ""
		q := question{allowed: true, patched: true}
		switch deployment % 10 {
		case 3:
			label, q.patched = `,"sidecar.istio.io/inject":"false"`, false
		case 6:
			annotation, q.allowed, q.patched = `,"traffic.sidecar.istio.io/excludeOutboundPorts":"all"`, false, false
		}
		pod := fmt.Sprintf(injectedPod, fmt.Sprint("app-", deployment), fmt.Sprintf("%05d", i), label, annotation)
		if q.body, err = review(fmt.Sprint("u-", i), "shop", "Pod", json.RawMessage(pod)); err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return list, nil
}

func (r reviews) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	path, asked := "/validate", validations
	if r.injection {
		path, asked = "/inject", injections
	}
	questions, err := asked()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // The test trusts any server.
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: reviewers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func(i int) error {
		q := questions[i%len(questions)]
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.https+path, bytes.NewReader(q.body))
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
		if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || answer.Response.Allowed != q.allowed ||
			(len(answer.Response.Patch) > 0) != q.patched {
			return fmt.Errorf("%s: %s, %s, where allowed should be %v, and patched %v", q.body, resp.Status, text, q.allowed, q.patched)
		}
		return nil
	}
	all := func(first, n int, took func(time.Duration)) error {
		var g errgroup.Group
		g.SetLimit(reviewers)
		for i := first; i < first+n; i++ {
			g.Go(func() error {
				began := time.Now()
				err := ask(i)
				took(time.Since(began))
				return err
			})
		}
		return g.Wait()
	}
	if err := all(0, warmReviews, func(time.Duration) {}); err != nil {
		return nil, err
	}
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var times []time.Duration
	start := time.Now()
	err = all(warmReviews, reviewCount, func(d time.Duration) {
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
