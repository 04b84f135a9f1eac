package token

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/store"
)

// Claims of every token.
const (
	Issuer   = "pilot-discovery"
	Audience = "istio-ca"
)

// MaxTTL is the longest lifetime of a token.
const MaxTTL = 24 * time.Hour

// keyFile is the name of the key file in the state folder.
const keyFile = "token-key.pem"

// Key signs tokens.
type Key struct {
	signer crypto.Signer
	id     string
}

// NewKey returns the key in a state folder, and creates it if there is none. It is an error if other users may use the
// folder, which is then left unchanged.
func NewKey(dir string) (*Key, error) {
	if err := store.MakePrivate(dir); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(dir, keyFile)); errors.Is(err, fs.ErrNotExist) {
		if err := create(dir, filepath.Join(dir, keyFile)); err != nil {
			return nil, err
		}
	}
	return LoadKey(dir)
}

// LoadKey returns the key in a state folder. It is an error if there is none, or if other users may read or replace it.
func LoadKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	for _, p := range []string{dir, path} {
		if err := store.Private(p); err != nil {
			return nil, err
		}
	}
	text, err := safe.ReadFile(path)
	if err != nil {
		return nil, err
	}
	signer, err := pki.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(public)
	return &Key{signer, base64.RawURLEncoding.EncodeToString(sum[:12])}, nil
}

// create creates a key. If several processes do so at once, one succeeds and the others use its key.
func create(dir, path string) error {
	key, err := pki.GenerateKey()
	if err != nil {
		return err
	}
	text, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".token-key-") // has mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// JWKS returns the public key as a JSON Web Key Set.
func (k *Key) JWKS() ([]byte, error) {
	return json.Marshal(
		jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.signer.Public(), KeyID: k.id, Algorithm: string(jose.ES256), Use: "sig"}}})
}

// Issue returns a token of a service account.
func (k *Key) Issue(namespace, account string, ttl time.Duration, now time.Time) (string, error) {
	id := identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: account}
	if _, err := identity.Parse(id.String()); err != nil || strings.Contains(namespace+account, ":") {
		return "", fmt.Errorf("%.100q and %.100q name no service account", namespace, account)
	}
	if ttl <= 0 || ttl > MaxTTL {
		return "", fmt.Errorf("a token may be valid for %s at most, not %s", MaxTTL, ttl)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.signer, KeyID: k.id}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(s).Claims(jwt.Claims{
		Issuer: Issuer, Subject: "system:serviceaccount:" + namespace + ":" + account, Audience: jwt.Audience{Audience},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(ttl)),
	}).Serialize()
}
