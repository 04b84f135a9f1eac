package store

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Plugged is a CA that the operator provides in a folder: ROOT_CA_DIR, usually the mounted Secret cacerts.
type Plugged struct {
	Bundle *pki.Bundle
	CRL    []byte // ca-crl.pem; nil if there is none
}

// revokedFile is the file of the revocation lists in every layout.
const revokedFile = "ca-crl.pem"

// layouts returns the accepted sets of file names: Istio's, and those of a Secret of type kubernetes.io/tls.
func layouts() []map[string]string {
	return []map[string]string{
		{"certificate": certificateFile, "key": keyFile, "roots": rootsFile, "chain": chainFile, "crl": revokedFile},
		{"certificate": "tls.crt", "key": "tls.key", "roots": "ca.crt", "crl": revokedFile},
	}
}

// ReadPlugged returns the CA in a folder. It returns nil if there is none, or if a server has generated it, which is
// then loaded from its Secret. It is an error if a part is missing or does not belong to the others.
func ReadPlugged(dir string, now time.Time) (*Plugged, error) {
	if _, err := os.Stat(dir); err != nil {
		if err := dangling(dir, err); !os.IsNotExist(err) {
			return nil, err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, generatedFile)); err == nil {
		return nil, nil
	}
	revoked := false
	for _, layout := range layouts() {
		part, missing := map[string][]byte{}, []string{}
		for name, file := range layout {
			text, err := readFile(filepath.Join(dir, file))
			switch {
			case err == nil:
				part[name] = text
			case !os.IsNotExist(err):
				return nil, err
			case name == "certificate" || name == "key" || name == "roots":
				missing = append(missing, file)
			}
		}
		if _, revoked = part["crl"]; len(part) == 0 || revoked && len(part) == 1 {
			continue
		}
		if len(missing) > 0 {
			slices.Sort(missing)
			return nil, fmt.Errorf("the CA in %s is incomplete: %v is missing beside %v", dir, missing, slices.Sorted(maps.Keys(part)))
		}
		certificate, chain := part["certificate"], part["chain"]
		b, err := pki.ParseBundle(pki.Files{Certificate: certificate, Key: part["key"], Chain: chain, Roots: part["roots"]}, now)
		if err != nil {
			return nil, fmt.Errorf("the CA in %s: %w", dir, err)
		}
		return &Plugged{b, part["crl"]}, nil
	}
	if revoked {
		return nil, fmt.Errorf("the CA in %s is incomplete: it has %s alone", dir, revokedFile)
	}
	return nil, nil
}
