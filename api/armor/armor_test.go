package armor

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// must returns a value, and ends the test if err is not nil.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// issue returns a certificate of a key in PEM.
func issue(t *testing.T, name string, key crypto.Signer) []byte {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, c, c, key.Public(), key))
	return pem.EncodeToMemory(&pem.Block{Type: Certificate, Bytes: der})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

// TestWhole: every certificate of a text is read, or the error names the first that is not.
func TestWhole(t *testing.T) {
	key := newKey(t)
	one := string(issue(t, "one", key))
	two := string(issue(t, "two", key))
	joint := strings.TrimSuffix(one, "\n") + two
	for name, c := range map[string]struct {
		text  string
		names string // of the certificates, or else part of the error
	}{
		"two":                             {one + two, "one two"},
		"text before, between and behind": {"Certificate:\n  Data:\n" + one + "# the root\n" + two + "# end", "one two"},
		"lines of Windows":                {strings.ReplaceAll(one+two, "\n", "\r\n"), "one two"},
		"no last line end":                {one + strings.TrimSuffix(two, "\n"), "one two"},
		"other blocks":                    {"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + one, "one"},
		"a broken joint":                  {joint, "PEM block 1 cannot be read"},
		"a broken joint behind":           {one + joint, "PEM block 2 cannot be read"},
		"indented":                        {one + strings.ReplaceAll(two, "-----BEGIN", "  -----BEGIN"), "PEM block 2 cannot be read"},
		"a byte order mark":               {"\ufeff" + one + two, "PEM block 1 cannot be read"},
		"cut off":                         {one + two[:len(two)/2], "PEM block 2 cannot be read"},
		"no base64":                       {one + strings.Replace(two, "MII", "M!I", 1), "PEM block 2 cannot be read"},
		"another label at the end":        {strings.Replace(one, "END CERT", "END X509 CERT", 1) + two, "PEM block 1 cannot be read"},
		"DER of nothing": {one + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			"certificate 2 cannot be parsed"},
		"nothing":    {"", "no certificate"},
		"text alone": {"# end", "no certificate"},
	} {
		list, err := Certificates([]byte(c.text))
		var names []string
		for _, c := range list {
			names = append(names, c.Subject.CommonName)
		}
		if got := strings.Join(names, " "); err == nil && got != c.names || err != nil && !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %q %v, want %q", name, got, err, c.names)
		}
		if failed := AddRoots(x509.NewCertPool(), []byte(c.text)); (failed == nil) != (err == nil) {
			t.Errorf("%s: as roots %v", name, failed)
		}
	}
}

// TestJoin: texts with and without a last line end become one that is read whole.
func TestJoin(t *testing.T) {
	one := string(issue(t, "one", newKey(t)))
	if list, err := Certificates(Join([]string{strings.TrimSpace(one), one, strings.TrimSpace(one)})); err != nil || len(list) != 3 {
		t.Errorf("%d certificates, %v", len(list), err)
	}
}

// TestLabels: a key is read whatever its label, and gets the label of its content.
func TestLabels(t *testing.T) {
	ec, rsaKey := newKey(t), must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	for _, label := range []string{pkcs8, pkcs1, sec1} {
		for want, der := range map[string][]byte{
			pkcs8: must[[]byte](t)(x509.MarshalPKCS8PrivateKey(rsaKey)),
			pkcs1: x509.MarshalPKCS1PrivateKey(rsaKey), sec1: must[[]byte](t)(x509.MarshalECPrivateKey(ec)),
		} {
			key, b, err := PrivateKey(&pem.Block{Type: label, Bytes: der})
			if err != nil || key == nil || b.Type != want || !bytes.Equal(b.Bytes, der) {
				t.Errorf("%s in a block %s: %v %v", want, label, b, err)
			}
			text := pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der})
			if got := string(Labelled(text)); !strings.Contains(got, "-----BEGIN "+want+"-----\n") || label == want && got != string(text) {
				t.Errorf("%s in a block %s is labelled %.60s", want, label, got)
			}
		}
	}
	if _, _, err := PrivateKey(&pem.Block{Type: pkcs1, Bytes: []byte("secret")}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no key: %v", err)
	}
}

// TestKeyPair: what is wrong with a chain and its key is named.
func TestKeyPair(t *testing.T) {
	key, other := newKey(t), newKey(t)
	encoded := pem.EncodeToMemory(&pem.Block{Type: sec1, Bytes: must[[]byte](t)(x509.MarshalECPrivateKey(key))})
	leaf, root := issue(t, "leaf", key), issue(t, "root", other)
	for name, c := range map[string]struct {
		chain []byte
		want  string
	}{
		"right":             {append(bytes.Clone(leaf), root...), ""},
		"reversed":          {append(bytes.Clone(root), leaf...), "number 2 is the certificate of the private key"},
		"another":           {root, "does not match"},
		"others":            {append(bytes.Clone(root), root...), "does not match"},
		"with broken joint": {append(bytes.TrimSpace(bytes.Clone(leaf)), root...), "PEM block 1"},
	} {
		if _, err := KeyPair(c.chain, encoded); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
