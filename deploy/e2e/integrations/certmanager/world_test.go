package certmanager

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}

// program runs cert-manager. The test adds the Secrets of both Issuers for the mesh.
const program = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: cert-manager, namespace: cert-manager}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cert-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: cert-manager, namespace: cert-manager}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cert-manager, namespace: cert-manager}
spec:
  selector:
    matchLabels: {app: cert-manager}
  template:
    metadata:
      labels: {app: cert-manager}
    spec:
      serviceAccountName: cert-manager
      containers:
      - name: cert-manager
        image: example.com/cert-manager:1
        env:
        - {name: POD_NAMESPACE, value: cert-manager}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: mesh}
spec:
  ca: {secretName: mesh-ca}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: workloads, namespace: istio-system}
spec:
  ca: {secretName: workloads-ca}
`

// reference lets the control plane use Issuers of its namespace, which cert-manager requires.
const reference = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: istiod-issuers, namespace: istio-system}
rules:
- apiGroups: [cert-manager.io]
  resources: [signers]
  verbs: [reference]
  resourceNames: [workloads]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: istiod-issuers, namespace: istio-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: istiod-issuers}
subjects:
- {kind: ServiceAccount, name: istiod, namespace: istio-system}
`

// shop has a server with a certificate of the default signer, and a client that names its signer.
const shop = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {istio-injection: enabled}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec:
  mtls: {mode: STRICT}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: server, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: client, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: shop}
spec:
  selector:
    matchLabels: {app: server}
  template:
    metadata:
      labels: {app: server}
    spec:
      serviceAccountName: server
      containers:
      - {name: server, image: example.com/echo-advanced:1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: shop}
spec:
  selector:
    matchLabels: {app: client}
  template:
    metadata:
      labels: {app: client}
      annotations:
        proxy.istio.io/config: |
          proxyMetadata: {ISTIO_META_CERT_SIGNER: mesh}
    spec:
      serviceAccountName: client
      containers:
      - {name: client, image: example.com/echo-advanced:1}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec:
  selector: {app: server}
  ports:
  - {name: http, port: 80, targetPort: 8080}
`

// ingress has a Gateway, and a Certificate that makes its Secret. cert-manager makes the CA of the Issuer too.
const ingress = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: root, namespace: istio-ingress}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop-ca, namespace: istio-ingress}
spec:
  isCA: true
  commonName: shop-ca
  secretName: shop-ca
  issuerRef: {name: root}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: shop, namespace: istio-ingress}
spec:
  ca: {secretName: shop-ca}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: istio-ingress}
spec:
  secretName: web-tls
  dnsNames: [web.example.com]
  issuerRef: {name: shop}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: istio-ingress}
spec:
  selector: {istio: ingress}
  servers:
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: [web.example.com]
    tls: {mode: SIMPLE, credentialName: web-tls}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: istio-ingress}
spec:
  hosts: [web.example.com]
  gateways: [web]
  http:
  - route:
    - destination: {host: server.shop.svc.cluster.local}
`

// annotated is a Gateway for which cert-manager makes a Certificate.
const annotated = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: api
  namespace: istio-ingress
  annotations: {cert-manager.io/issuer: shop}
spec:
  gatewayClassName: istio
  listeners:
  - name: https
    protocol: HTTPS
    port: 443
    hostname: api.example.com
    tls:
      certificateRefs:
      - {name: api-tls}
    allowedRoutes:
      namespaces: {from: All}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: api, namespace: shop}
spec:
  parentRefs:
  - {name: api, namespace: istio-ingress}
  rules:
  - backendRefs:
    - {name: server, port: 80}
`

type world struct {
	*install.World
	ctx context.Context
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{ctx: t.Context()}
	dir := os.Getenv(install.DirVar)
	w.World = install.New(t, install.Options{
		Network: network, Definitions: []string{filepath.Join(dir, "gateway-api"), filepath.Join(dir, "cert-manager.yaml")},
		Image: func(name string) (node.Image, bool) {
			return install.Image("cert-manager", "cert-manager"), strings.Contains(name, "/cert-manager:")
		},
	})
	return w
}

// addCA writes the Secret with the CA of an Issuer.
func (w *world) addCA(t *testing.T, namespace, secret string) {
	t.Helper()
	_, err := w.Client().CoreV1().Secrets(namespace).Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret}, Type: corev1.SecretTypeTLS, StringData: map[string]string{
			corev1.TLSCertKey: w.File(secret + ".crt"), corev1.TLSPrivateKeyKey: w.File(secret + ".key"),
		}}, metav1.CreateOptions{})
	must.Succeed(t, err)
}

// shown returns the certificate that the sidecar of the pod with an app label shows.
func (w *world) shown(app string) (leaf *x509.Certificate, err error) {
	pods := w.Pods("shop", "app="+app)
	if len(pods) == 0 {
		return nil, fmt.Errorf("there is no pod of %s", app)
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", net.JoinHostPort(pods[0].Status.PodIP, "8080"), &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"istio"}, // the caller verifies it
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) (err error) {
			leaf, err = x509.ParseCertificate(raw[0])
			return err
		},
	})
	if err == nil {
		err = conn.Close()
	}
	if leaf != nil {
		return leaf, nil // a proxy may end the connection, because it gets no certificate
	}
	return nil, err
}

// roots returns the certificates in the value of a Secret's key.
func (w *world) roots(t *testing.T, namespace, secret, key string) *x509.CertPool {
	t.Helper()
	s, err := w.Client().CoreV1().Secrets(namespace).Get(w.ctx, secret, metav1.GetOptions{})
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.Data[key]) {
		t.Fatalf("Secret %s has no certificate in %s", secret, key)
	}
	return pool
}

// renew renews a Certificate, as `cmctl renew` does.
func (w *world) renew(t *testing.T, namespace, name string) {
	t.Helper()
	client := w.Dynamic().Resource(certificates).Namespace(namespace)
	suite.Eventually(t, "the renewal of "+name+" has begun", func() bool {
		o, err := client.Get(w.ctx, name, metav1.GetOptions{})
		must.Succeed(t, err)
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		must.Succeed(t, err)
		if slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Issuing" }) {
			return false // the last renewal has not ended
		}
		must.Succeed(t, unstructured.SetNestedSlice(o.Object, append(conditions, map[string]any{
			"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test", "observedGeneration": o.GetGeneration(),
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}), "status", "conditions"))
		_, err = client.UpdateStatus(w.ctx, o, metav1.UpdateOptions{})
		return err == nil
	})
}

// site is a host behind a gateway.
type site struct {
	addr, host string
	roots      *x509.CertPool
}

// get connects to the gateway and sends one request, and returns the certificate of the gateway.
func (s site) get() (*x509.Certificate, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", net.JoinHostPort(s.addr, "443"),
		&tls.Config{ServerName: s.host, RootCAs: s.roots})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, "https://"+s.host+"/", nil)
	if err != nil {
		return nil, err
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}

// visits are requests to a site, each on its own connection.
type visits struct {
	serials []string // serial numbers of the certificates, in order, without repetition
	count   int
	errs    []error
}

// visit sends requests until the test ends or stop is called, which returns the visits.
func (s site) visit(t *testing.T) (now, stop func() visits) {
	t.Helper()
	var v visits
	var mu sync.Mutex
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			cert, err := s.get()
			mu.Lock()
			v.count++
			if err != nil {
				v.errs = append(v.errs, err)
			} else if serial := cert.SerialNumber.String(); len(v.serials) == 0 || v.serials[len(v.serials)-1] != serial {
				v.serials = append(v.serials, serial)
			}
			mu.Unlock()
		}
	})
	now = func() visits {
		mu.Lock()
		defer mu.Unlock()
		return v
	}
	stop = func() visits {
		cancel()
		all.Wait()
		return now()
	}
	t.Cleanup(func() { stop() })
	return now, stop
}

// served waits until a site is served, and returns its certificate.
func (s site) served(t *testing.T) (cert *x509.Certificate) {
	t.Helper()
	var err error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last answer of %s: %v", s.host, err)
		}
	})
	suite.Eventually(t, s.host+" is served", func() bool {
		cert, err = s.get()
		return err == nil
	})
	return cert
}
