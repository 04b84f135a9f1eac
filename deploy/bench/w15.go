package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// inRichMesh is a part of W15: another workload in a mesh with all features.
type inRichMesh struct {
	workload
	part string
}

func (r inRichMesh) name() string { return "W15" + r.part }

func (r inRichMesh) needs() needs {
	n := r.workload.needs()
	n.scene, n.limit = rich, false
	return n
}

func (r inRichMesh) about(o options) string {
	return fmt.Sprintf(
		"%s in the mesh of W13 with %d EnvoyFilters, %d of them in the root namespace, access logs by a Telemetry, and a gateway with %d TLS "+
			"hosts and their Secrets. %s",
		r.workload.name(), world.EnvoyFilters, world.RootEnvoyFilters, world.TLSHosts, r.workload.about(o))
}

// richChanges is W15d.
type richChanges struct{}

func (richChanges) name() string { return "W15d" }

func (richChanges) needs() needs {
	return needs{fleet: true, scene: rich, length: usualLength}
}

func (richChanges) about(options) string {
	return "In the mesh of W15a the EnvoyFilter of one namespace changes once a second: from the write to the API server until the listener " +
		"reaches each proxy of the namespace. " +
		"Then one Secret after the other changes, one a second: until the gateway, which proves itself by its token, has the certificate. What " +
		"the others receive is exact, of all of them together."
}

func (richChanges) rows() []row {
	none, most := 0.0, 50.0
	return []row{
		{name: "EnvoyFilter: p50", unit: "ms"},
		{name: "EnvoyFilter: p99", unit: "ms"},
		{name: "EnvoyFilter: CPU a change", unit: "ms"},
		{name: "EnvoyFilter: received by a proxy of its namespace, a change", unit: "kB"},
		{name: "EnvoyFilter: received by the others", unit: "bytes", atMost: &none, informative: true},
		{name: "Secret: p50", unit: "ms"},
		{name: "Secret: p99", unit: "ms", atMost: &most},
		{name: "Secret: CPU a change", unit: "ms"},
		{name: "Secret: received by the gateway, a change", unit: "kB"},
		{name: "Secret: received by the others", unit: "bytes", atMost: &none, informative: true},
		{name: "streams that ended", informative: true},
	}
}

func (richChanges) run(ctx context.Context, s *session) (figures, error) {
	within := func(proxy int) bool { return proxy%s.world.Services%s.world.Namespaces == changingNamespace }
	if _, err := s.settle(ctx); err != nil { // until then, earlier changes have arrived
		return nil, err
	}
	own, others := s.received(within)
	prefix := marks()
	filter, err := s.changed(ctx,
		changes{every: time.Second, kinds: []load.Type{load.Listeners}, find: load.FindMark(prefix), to: within, apply: func(n int) error {
			return update(ctx, s.clients.Dynamic.Resource(world.EnvoyFilterResource()), s.world.EnvoyFilter(changingNamespace, load.Mark(prefix, n)))
		}})
	if err != nil {
		return nil, err
	}
	ownNow, othersNow := s.received(within)

	gateway, err := s.secureGateway(ctx)
	if err != nil {
		return nil, err
	}
	defer gateway.fleet.Stop()
	before := s.fleet.Counters().Bytes()
	secrets := s.clients.Core.CoreV1().Secrets(world.GatewayNamespace)
	secret, err := gateway.changed(ctx,
		changes{every: time.Second, kinds: []load.Type{load.Secrets}, find: findCertificate(prefix), apply: func(n int) error {
			issued, err := world.Secret(n%world.TLSHosts, load.Mark(prefix, n))
			if err != nil {
				return err
			}
			_, err = secrets.Update(ctx, issued, metav1.UpdateOptions{})
			return err
		}})
	if err != nil {
		return nil, err
	}
	return figures{
		"EnvoyFilter: p50": filter["p50"], "EnvoyFilter: p99": filter["p99"], "EnvoyFilter: CPU a change": filter["CPU a change"],
		"EnvoyFilter: received by a proxy of its namespace, a change": kB(ownNow-own) / filter["changes"] / float64(s.count(within)),
		"EnvoyFilter: received by the others":                         float64(othersNow - others),
		"Secret: p50":                                                 secret["p50"], "Secret: p99": secret["p99"],
		"Secret: CPU a change":                      secret["CPU a change"],
		"Secret: received by the gateway, a change": secret["received by a proxy a change"],
		"Secret: received by the others":            float64(s.fleet.Counters().Bytes() - before),
		"streams that ended":                        filter["streams that ended"] + secret["streams that ended"],
	}, nil
}

// secureGateway returns a session with the same server, whose fleet is only the gateway with all its certificates. It
// connects over TLS and authenticates with a token.
func (s *session) secureGateway(ctx context.Context) (*session, error) {
	token, err := s.token(ctx, world.GatewayNamespace, world.GatewayWorkload, world.GatewayPod)
	if err != nil {
		return nil, fmt.Errorf("the gateway's token: %w", err)
	}
	alone := *s
	alone.fleet, err = s.connect(load.Options{
		// The test trusts any server.
		Address: s.secure, Credentials: credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), PerRPC: bearer(token), //nolint:gosec
		Proxies: 1, Identity: func(int) load.Identity { return gateway() },
	})
	if err != nil {
		return nil, err
	}
	if err := alone.fleet.Wait(ctx); err != nil {
		alone.fleet.Stop()
		return nil, fmt.Errorf("the gateway: %w", err)
	}
	if n := alone.fleet.Counters().Types[load.Secrets].Resources; n < world.TLSHosts {
		alone.fleet.Stop()
		return nil, fmt.Errorf("%s sends the gateway %d certificates, and it has %d hosts", s.title, n, world.TLSHosts)
	}
	return &alone, nil
}

// bearer is a token that is sent with each stream.
type bearer string

// GetRequestMetadata returns the header with the token.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity returns true: the token is never sent in plaintext.
func (bearer) RequireTransportSecurity() bool { return true }

// findCertificate returns a function that finds the number of the mark in the organization of the first certificate of
// an encoded Secret, or -1.
func findCertificate(prefix string) func(body []byte) int {
	find := load.FindMark(prefix)
	return func(body []byte) int {
		at := bytes.Index(body, []byte("-----BEGIN CERTIFICATE-----"))
		if at < 0 {
			return -1
		}
		block, _ := pem.Decode(body[at:])
		if block == nil {
			return -1
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || len(c.Subject.Organization) == 0 {
			return -1
		}
		return find([]byte(c.Subject.Organization[0]))
	}
}
