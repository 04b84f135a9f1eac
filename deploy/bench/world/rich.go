package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Objects of a rich mesh in addition to policies.
const (
	EnvoyFilters     = 20
	RootEnvoyFilters = 5 // of the EnvoyFilters
	TLSHosts         = 100
)

var (
	envoyFilters = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1alpha3", Resource: "envoyfilters"}
	telemetries  = schema.GroupVersionResource{Group: "telemetry.istio.io", Version: "v1", Resource: "telemetries"}
)

// EnvoyFilterResource returns the resource of EnvoyFilters.
func EnvoyFilterResource() schema.GroupVersionResource { return envoyFilters }

// EnvoyFilter returns the EnvoyFilter of namespace n: a Lua filter on all HTTP listeners of its workloads. The mark is
// a text in the script.
func (w World) EnvoyFilter(n int, mark string) *unstructured.Unstructured {
	return envoyFilter("script-"+strconv.Itoa(n), w.Namespace(n),
		patch("HTTP_FILTER", "SIDECAR_INBOUND", "INSERT_BEFORE", map[string]any{"listener": router()}, lua(mark)))
}

// rootEnvoyFilters returns the EnvoyFilters of the root namespace. Each patches a different place of every sidecar.
func rootEnvoyFilters() []*unstructured.Unstructured {
	const manager = "envoy.filters.network.http_connection_manager"
	return []*unstructured.Unstructured{
		envoyFilter("script", RootNamespace,
			patch("HTTP_FILTER", "SIDECAR_OUTBOUND", "INSERT_BEFORE", map[string]any{"listener": router()}, lua("everywhere"))),
		envoyFilter("headers", RootNamespace, patch("NETWORK_FILTER", "SIDECAR_INBOUND", "MERGE",
			map[string]any{"listener": map[string]any{"filterChain": map[string]any{"filter": map[string]any{"name": manager}}}},
			map[string]any{"typed_config": map[string]any{
				"@type":                        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"common_http_protocol_options": map[string]any{"max_headers_count": int64(200)},
			}})),
		envoyFilter("keepalive", RootNamespace, patch("CLUSTER", "SIDECAR_OUTBOUND", "MERGE", nil,
			map[string]any{"upstream_connection_options": map[string]any{"tcp_keepalive": map[string]any{"keepalive_time": int64(300)}}})),
		envoyFilter("attempts", RootNamespace,
			patch("VIRTUAL_HOST", "SIDECAR_OUTBOUND", "MERGE", nil, map[string]any{"include_attempt_count_in_response": true})),
		envoyFilter("buffers", RootNamespace, patch("LISTENER", "SIDECAR_INBOUND", "MERGE",
			map[string]any{"listener": map[string]any{"name": "virtualInbound"}},
			map[string]any{"per_connection_buffer_limit_bytes": int64(65536)})),
	}
}

func envoyFilter(name, namespace string, patches ...any) *unstructured.Unstructured {
	o := istio("EnvoyFilter", name, namespace, map[string]any{"configPatches": patches})
	o.SetAPIVersion("networking.istio.io/v1alpha3")
	return o
}

func patch(applyTo, where, operation string, match, value map[string]any) map[string]any {
	at := map[string]any{"context": where}
	for k, v := range match {
		at[k] = v
	}
	return map[string]any{"applyTo": applyTo, "match": at, "patch": map[string]any{"operation": operation, "value": value}}
}

// router matches the HTTP router filter.
func router() map[string]any {
	return map[string]any{"filterChain": map[string]any{"filter": map[string]any{
		"name": "envoy.filters.network.http_connection_manager", "subFilter": map[string]any{"name": "envoy.filters.http.router"},
	}}}
}

func lua(mark string) map[string]any {
	return map[string]any{"name": "bench.lua", "typed_config": map[string]any{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
		"default_source_code": map[string]any{
			"inline_string": fmt.Sprintf("function envoy_on_response(handle) handle:headers():add('x-bench', '%s') end", mark),
		},
	}}
}

// SeedRich adds the objects of a rich mesh: policies, EnvoyFilters, access logs, and a gateway with TLS hosts that have
// a certificate and a route each. It writes as many objects in parallel as there are workers.
func (c *Clients) SeedRich(ctx context.Context, w World, workers int) error {
	if err := c.SeedPolicies(ctx, w, workers); err != nil {
		return err
	}
	logs := istio("Telemetry", "logs", RootNamespace, map[string]any{
		"accessLogging": []any{map[string]any{"providers": []any{map[string]any{"name": "envoy"}},
			"filter": map[string]any{"expression": "response.code >= 500"}}},
	})
	logs.SetAPIVersion("telemetry.istio.io/v1")
	filters := rootEnvoyFilters()
	for n := range EnvoyFilters - RootEnvoyFilters {
		filters = append(filters, w.EnvoyFilter(n%min(w.Namespaces, w.Services), "seed"))
	}
	_, err := c.Dynamic.Resource(telemetries).Namespace(RootNamespace).Create(ctx, logs, metav1.CreateOptions{})
	err = orExists(err)
	for _, o := range filters {
		_, made := c.Dynamic.Resource(envoyFilters).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
		err = errors.Join(err, orExists(made))
	}
	if err != nil {
		return fmt.Errorf("seed a rich mesh: %w", err)
	}
	var servers []any
	for i := range TLSHosts {
		servers = append(servers, map[string]any{
			"port":  map[string]any{"number": int64(443), "name": "https-" + strconv.Itoa(i), "protocol": "HTTPS"},
			"hosts": []any{routeName(i) + ".example.com"}, "tls": map[string]any{"mode": "SIMPLE", "credentialName": routeName(i)},
		})
	}
	if err := c.seedGateway(ctx, w, TLSHosts, workers, servers); err != nil {
		return err
	}
	return c.seedSecrets(ctx, workers)
}

// seedSecrets adds the certificates of the gateway's hosts, and lets the gateway read them.
func (c *Clients) seedSecrets(ctx context.Context, workers int) error {
	_, err := c.Core.CoreV1().ServiceAccounts(GatewayNamespace).
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: GatewayWorkload}}, metav1.CreateOptions{})
	_, role := c.Core.RbacV1().Roles(GatewayNamespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: GatewayWorkload},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	_, binding := c.Core.RbacV1().RoleBindings(GatewayNamespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: GatewayWorkload},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: GatewayWorkload},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: GatewayNamespace, Name: GatewayWorkload}},
	}, metav1.CreateOptions{})
	if err := errors.Join(orExists(err), orExists(role), orExists(binding)); err != nil {
		return fmt.Errorf("seed the gateway's rights: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range TLSHosts {
		g.Go(func() error {
			s, err := Secret(i, "seed")
			if err == nil {
				_, err = c.Core.CoreV1().Secrets(GatewayNamespace).Create(ctx, s, metav1.CreateOptions{})
				err = orExists(err)
			}
			if err != nil {
				return fmt.Errorf("seed secret %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Secret returns a newly issued certificate of host i of the gateway. The mark is the organization of its subject.
func Secret(i int, mark string) (*corev1.Secret, error) {
	host := routeName(i) + ".example.com"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host, Organization: []string{mark}},
		DNSNames:  []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
	}, &x509.Certificate{Subject: pkix.Name{CommonName: "bench"}}, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: routeName(i), Namespace: GatewayNamespace}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		}}, nil
}

// RemoveRich deletes everything that SeedRich added, except namespaces and the gateway's rights.
func (c *Clients) RemoveRich(ctx context.Context, w World) error {
	err := errors.Join(c.RemovePolicies(ctx, w), c.RemoveGateway(ctx),
		c.Core.CoreV1().Secrets(GatewayNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		c.Dynamic.Resource(telemetries).Namespace(RootNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		c.Dynamic.Resource(envoyFilters).Namespace(RootNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for n := range min(w.Namespaces, w.Services) {
		err = errors.Join(err,
			c.Dynamic.Resource(envoyFilters).Namespace(w.Namespace(n)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	if err != nil {
		return fmt.Errorf("remove what a rich mesh has: %w", err)
	}
	return nil
}
