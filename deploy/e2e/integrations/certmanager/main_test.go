package certmanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

// signers are the signers of Kubernetes, by the name of the Secret with the CA of their Issuer.
var signers = map[string]string{
	"workloads-ca": "issuers.cert-manager.io/istio-system.workloads", "mesh-ca": "clusterissuers.cert-manager.io/mesh",
}

// prepare provides the programs and the manifests of the tests.
func prepare(ctx context.Context, dir string) ([]string, error) {
	mesh := "meshConfig:\n  caCertificates:\n"
	for secret, signer := range signers {
		ca, err := pki.NewSelfSigned(secret, 24*time.Hour, time.Now())
		if err != nil {
			return nil, err
		}
		f, err := ca.Encode()
		if err != nil {
			return nil, err
		}
		for name, text := range map[string][]byte{secret + ".crt": f.Certificate, secret + ".key": f.Key} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil { // another user reads it
				return nil, err
			}
		}
		mesh += fmt.Sprintf("  - certSigners: [%s]\n    pem: |\n      %s\n", signer,
			strings.ReplaceAll(strings.TrimSpace(string(f.Certificate)), "\n", "\n      "))
	}
	values := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(values, []byte(mesh), 0o644); err != nil {
		return nil, err
	}
	environ, err := install.Prepare(ctx, dir, install.Chart{Args: []string{"-f", values, "--set",
		"env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API,env.K8S_SIGNER=" + signers["workloads-ca"] +
			",env.CERT_SIGNER_DOMAIN=clusterissuers.cert-manager.io,global.pilotCertProvider=k8s.io/" + signers["mesh-ca"] +
			",env.ISTIO_MULTIROOT_MESH=true"}}) // workloads trust the certificates of both issuers
	if err != nil {
		return nil, err
	}
	if err := install.Render(ctx, dir, "istio-ingress", "gateway",
		install.Chart{Release: "istio-ingress", Namespace: "istio-ingress", Args: []string{"--set", "autoscaling.enabled=false"}}); err != nil {
		return nil, err
	}
	program, err := binaries.Program(dir, "cert-manager")
	if err != nil {
		return nil, err
	}
	crds, err := cluster.GatewayCRDs(ctx)
	if err != nil {
		return nil, err
	}
	return append(environ, program...), os.CopyFS(filepath.Join(dir, "gateway-api"), os.DirFS(crds))
}
