package compliance

import (
	"crypto/fips140"
	"crypto/tls"
	"fmt"
	"slices"
)

// suites returns the cipher suites of crypto/tls that the policies allow. Its lists for TLS 1.2 and for TLS 1.3 are
// one, because their numbers differ.
func suites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384,
	}
}

// Limit limits a configuration of TLS to the policy, and returns it. A minimum version above the policy's stays, and
// then all handshakes fail: see Conflict.
func (p Policy) Limit(c *tls.Config) *tls.Config {
	if p == None {
		return c
	}
	low, high := p.goVersions(fips140.Enabled())
	c.MinVersion, c.MaxVersion = max(c.MinVersion, low), high
	c.CipherSuites = suites()
	c.CurvePreferences = p.groups()
	verify := c.VerifyConnection
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if !slices.Contains(suites(), s.CipherSuite) {
			return fmt.Errorf("%s does not allow the cipher suite %s, which a side without hardware for AES prefers",
				p, tls.CipherSuiteName(s.CipherSuite))
		}
		if verify != nil {
			return verify(s)
		}
		return nil
	}
	return c
}

// goVersions returns the versions that crypto/tls may speak. It chooses the cipher suites of TLS 1.3 itself, and keeps
// to those of FIPS 140-3 only in that mode.
func (p Policy) goVersions(mode bool) (low, high uint16) {
	switch {
	case p == PQC:
		return tls.VersionTLS13, tls.VersionTLS13
	case p == FIPS1403 && mode:
		return tls.VersionTLS12, tls.VersionTLS13
	}
	return tls.VersionTLS12, tls.VersionTLS12
}

func (p Policy) groups() []tls.CurveID {
	switch p {
	case FIPS1402:
		return []tls.CurveID{tls.CurveP256}
	case PQC:
		return []tls.CurveID{tls.X25519MLKEM768}
	}
	return []tls.CurveID{tls.CurveP256, tls.CurveP384}
}

// modeFix is what to do if the process does not run in Go's FIPS 140-3 mode.
const modeFix = "set GODEBUG=fips140=only"

// Conflict returns an error if this process cannot speak TLS of a minimum version under the policy, or nil.
func (p Policy) Conflict(least uint16) error { return p.conflict(least, fips140.Enabled()) }

func (p Policy) conflict(least uint16, mode bool) error {
	_, high := p.goVersions(mode)
	switch {
	case p == None || least <= high:
		return nil
	case p == FIPS1403:
		return fmt.Errorf("%s: without Go's FIPS 140-3 mode this process speaks TLS 1.2 alone: %s, or allow TLS 1.2", p, modeFix)
	}
	return fmt.Errorf("%s: this process speaks TLS 1.2 alone: allow it, or choose another policy", p)
}

// Warning returns what the process lacks for the policy, and the fix. Both are empty if it lacks nothing.
func (p Policy) Warning() (lack, fix string) {
	if p == FIPS1403 && !fips140.Enabled() {
		return "the process does not run in Go's FIPS 140-3 mode: it speaks TLS 1.2 alone", modeFix
	}
	return "", ""
}
