package samples

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// lifetime is the lifetime of the certificates of a copy. It is longer than a copy is used.
const lifetime = 90 * 24 * time.Hour

// CertificatesFile is the file with the certificates of each copy of the sample gateway-api. RootsFile has the CA's
// certificate in PEM, for clients.
const (
	CertificatesFile = "certificates.yaml"
	RootsFile        = "ca.pem"
)

// writeCertificates creates a CA, and the objects that the sample gateway-api names: the certificates of the Gateway
// and of the vault, and the ConfigMap with the CA that verifies the vault.
func writeCertificates(dir string) error {
	ca, key, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sample"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	if err != nil {
		return err
	}
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	objects := []any{&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "ca"},
		Data:       map[string]string{"ca.crt": string(roots)},
	}}
	for _, s := range []struct{ namespace, name, host string }{{"ingress", "bookinfo", "bookinfo.example.com"},
		{"payments", "vault", "vault.example.com"}} {
		certificate, private, err := sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: s.host}, DNSNames: []string{s.host}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, ca, key)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			return fmt.Errorf("encode a key: %w", err)
		}
		objects = append(objects, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
			Type:       corev1.SecretTypeTLS,
			Data: map[string][]byte{
				corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}),
				corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
			},
		})
	}
	var all []byte
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
		all = append(append(all, "---\n"...), text...)
	}
	if err := os.WriteFile(filepath.Join(dir, CertificatesFile), all, 0o600); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, RootsFile), roots, 0o644); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	return nil
}

// sign creates a key and its certificate. Without a parent the certificate is self-signed.
func sign(c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if parent == nil {
		parent, by = c, key
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(lifetime)
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate: %w", err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read a certificate: %w", err)
	}
	return signed, key, nil
}
