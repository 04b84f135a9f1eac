package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

// File names of a State. The first four are those of istiod's Secret istio-ca-secret, so that istiod and this server
// can take over each other's CA.
const (
	certificateFile     = "ca-cert.pem"
	keyFile             = "ca-key.pem"
	chainFile           = "cert-chain.pem"
	rootsFile           = "root-cert.pem"
	nextCertificateFile = "next-ca-cert.pem"
	nextKeyFile         = "next-ca-key.pem"
	sinceFile           = "rotation-since"
)

// Errors of a Store.
var (
	// ErrConflict means that another server has written the State in the meantime.
	ErrConflict = errors.New("the CA was changed by another server")
	// ErrAway means that the API server did not answer or refused. A later attempt may succeed.
	ErrAway = errors.New("the API server does not let the CA be kept")
	// ErrBroken means that an operator must correct or restore the stored CA, or delete it if it has expired.
	ErrBroken = errors.New("the stored CA cannot be used")
	// ErrDeleted means that the stored CA was deleted while this server, which is not elected, has it in memory.
	ErrDeleted = errors.New("the stored CA was deleted: the elected server writes it again")
)

// Store holds the State of a self-signed CA.
type Store interface {
	// String describes the place of the State, for messages.
	String() string
	// Load returns the State's files and their version. It returns nil files if there is no State yet.
	Load(ctx context.Context) (files map[string][]byte, version string, err error)
	// Save replaces the files of a version; an empty version means that there were none. It returns ErrConflict if the
	// stored version differs.
	Save(ctx context.Context, files map[string][]byte, version string) error
}

// encode returns the files of a State.
func encode(s rotation.State) (map[string][]byte, error) {
	own, err := s.Signing.Encode()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		certificateFile: own.Certificate, keyFile: own.Key, chainFile: own.Chain, rootsFile: pki.EncodeCertificates(s.Roots()...),
	}
	if s.Next != nil {
		next, err := s.Next.Encode()
		if err != nil {
			return nil, err
		}
		files[nextCertificateFile], files[nextKeyFile] = next.Certificate, next.Key
	}
	if !s.Since.IsZero() {
		files[sinceFile] = []byte(s.Since.UTC().Format(time.RFC3339Nano))
	}
	return files, nil
}

// decode returns the State in files, and reports whether it dropped an expired root.
//
// If servers were off when the next root was to take over, and the signing root has expired since, the next root signs
// alone: no certificate of the old root is valid any more.
func decode(files map[string][]byte, now time.Time) (s rotation.State, expired bool, err error) {
	roots := files[rootsFile]
	if len(roots) == 0 { // istiod before 1.14 wrote no root-cert.pem for a self-signed CA
		roots = files[certificateFile]
	}
	if text := files[nextCertificateFile]; len(text) > 0 {
		s.Next, err = pki.ParseBundle(pki.Files{Certificate: text, Key: files[nextKeyFile], Roots: text}, now)
		if expired = errors.Is(err, pki.ErrExpired); err != nil && !expired {
			return s, false, fmt.Errorf("the next root: %w", err)
		}
	}
	s.Signing, err = pki.ParseBundle(
		pki.Files{Certificate: files[certificateFile], Key: files[keyFile], Chain: files[chainFile], Roots: roots}, now)
	if s.Next != nil && errors.Is(err, pki.ErrExpired) {
		return rotation.State{Signing: s.Next}, true, nil
	}
	if err != nil {
		return rotation.State{}, false, err
	}
	if own := s.Signing.Certificate; !s.Signing.Roots[0].Equal(own) {
		return rotation.State{}, false,
			errors.New("the CA's certificate is not its own root: such a CA is plugged in by a folder, and not rotated here")
	}
	if text := files[sinceFile]; len(text) > 0 {
		if s.Since, err = time.Parse(time.RFC3339Nano, string(text)); err != nil {
			return rotation.State{}, false, fmt.Errorf("%s: %w", sinceFile, err)
		}
	}
	for _, c := range s.Signing.Roots[1:] {
		if s.Next == nil || !c.Equal(s.Next.Certificate) {
			s.Old = append(s.Old, c)
		}
	}
	return s, expired, nil
}

// Step loads the State of a store, creates a new CA if there is none, and takes the step of its rotation that is due.
// The returned State is stored. Without lead it takes no step of a rotation, but still creates the first CA, because no
// server could start without one.
func Step(ctx context.Context, st Store, o rotation.Options, now time.Time, lead bool) (rotation.State, error) {
	for {
		files, version, err := st.Load(ctx)
		if err != nil {
			return rotation.State{}, err
		}
		var s rotation.State
		changed := files == nil
		if changed {
			b, err := pki.NewSelfSigned(o.Organization, o.Lifetime, now)
			if err != nil {
				return s, err
			}
			s.Signing = b
		} else {
			var expired, stepped bool
			if s, expired, err = decode(files, now); errors.Is(err, pki.ErrExpired) {
				// An expired CA is not replaced: with a wrong clock every proxy would lose a valid CA.
				return s, fmt.Errorf("%w: %s: %w, and this machine's clock says %s: if that is right, delete it and start again, which makes a new CA",
					ErrBroken, st, err, now.UTC().Format(time.RFC3339))
			} else if err != nil {
				return s, fmt.Errorf("%w: %s: %w", ErrBroken, st, err)
			}
			if lead {
				if s, stepped, err = s.Step(o, now); err != nil {
					return s, err
				}
				changed = expired || stepped
			}
		}
		if !changed {
			return s, nil
		}
		out, err := encode(s)
		if err != nil {
			return s, err
		}
		for name, text := range files { // other files are kept
			if _, ours := out[name]; !ours && !slices.Contains([]string{nextCertificateFile, nextKeyFile, sinceFile}, name) {
				out[name] = text
			}
		}
		switch err := st.Save(ctx, maps.Clone(out), version); {
		case err == nil:
			return s, nil
		case !errors.Is(err, ErrConflict):
			return s, err
		case ctx.Err() != nil:
			return s, ctx.Err()
		}
	}
}
