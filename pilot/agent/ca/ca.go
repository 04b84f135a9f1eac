package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
)

// Options of a Client.
type Options struct {
	Upstream *upstream.Upstream
	// CertSigner is the Kubernetes signer that the CA should use. If it is empty, the CA signs itself.
	CertSigner string
	// Timeout bounds one call. The default is 30 s, because some signers wait for a person's approval.
	Timeout    time.Duration
	Registerer prometheus.Registerer
}

// Client requests certificates from a CA. It is safe for concurrent use.
type Client struct {
	o                Options
	requests, failed *prometheus.CounterVec
	latency          *prometheus.HistogramVec
}

// New returns a Client.
func New(o Options) (*Client, error) {
	if o.Upstream == nil {
		return nil, errors.New("ca: Options.Upstream is missing")
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	label := []string{"request_type"}
	c := &Client{
		o: o,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_num_outgoing_requests", Help: "Requests of the agent to the CA.",
		}, label),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_num_failed_outgoing_requests", Help: "Requests of the agent to the CA that failed.",
		}, label),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "istio_agent_outgoing_latency", Help: "Milliseconds until the CA answered.", Buckets: []float64{5, 20, 100, 500, 2000, 10000},
		}, label),
	}
	if o.Registerer != nil {
		for _, m := range []prometheus.Collector{c.requests, c.failed, c.latency} {
			if err := o.Registerer.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

const requestType = "csr"

// Sign returns the certificate chain for a certificate request in PEM, each certificate in PEM: the new certificate,
// its issuers and last the root. ttl is the requested validity. The CA may shorten it.
func (c *Client) Sign(ctx context.Context, csr []byte, ttl time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(c.o.Upstream.Context(ctx), c.o.Timeout)
	defer cancel()
	r := &authv1.IstioCertificateRequest{Csr: string(csr), ValidityDuration: int64(ttl / time.Second)}
	if c.o.CertSigner != "" {
		r.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CertSigner": structpb.NewStringValue(c.o.CertSigner)}}
	}
	began := time.Now()
	c.requests.WithLabelValues(requestType).Inc()
	a, err := authv1.NewIstioCertificateServiceClient(c.o.Upstream.Conn()).CreateCertificate(ctx, r)
	c.latency.WithLabelValues(requestType).Observe(float64(time.Since(began)) / float64(time.Millisecond))
	if err == nil && len(a.GetCertChain()) < 2 {
		err = fmt.Errorf("the CA returned %d certificates, not a certificate and its root", len(a.GetCertChain()))
	}
	if err != nil {
		c.failed.WithLabelValues(requestType).Inc()
		return nil, fmt.Errorf("failed to get a certificate from the CA %s: %w", c.o.Upstream.Address(), err)
	}
	chain := a.GetCertChain()
	for i, c := range chain {
		if !strings.HasSuffix(c, "\n") {
			chain[i] = c + "\n"
		}
	}
	return chain, nil
}
