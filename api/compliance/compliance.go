package compliance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Variable is the environment variable that names the policy.
const Variable = "COMPLIANCE_POLICY"

// Policy is a value of COMPLIANCE_POLICY.
type Policy string

// The policies. None limits nothing.
const (
	None     Policy = ""
	FIPS1402 Policy = "fips-140-2"
	FIPS1403 Policy = "fips-140-3"
	PQC      Policy = "pqc"
)

// Parse returns the policy of a name. The error says which names there are.
func Parse(name string) (Policy, error) {
	p := Policy(name)
	if !slices.Contains([]Policy{None, FIPS1402, FIPS1403, PQC}, p) {
		return None, fmt.Errorf("%s=%q: write %s, %s or %s, or unset the variable", Variable, name,
			string(FIPS1402), string(FIPS1403), string(PQC))
	}
	return p, nil
}

// String returns the variable with its value.
func (p Policy) String() string { return Variable + "=" + string(p) }

// Versions of TLS, in the numbers of Envoy.
const (
	unset = tlsv3.TlsParameters_TLS_AUTO
	tls12 = tlsv3.TlsParameters_TLSv1_2
	tls13 = tlsv3.TlsParameters_TLSv1_3
)

// versions returns the lowest and the highest version that a policy allows.
func (p Policy) versions() (low, high tlsv3.TlsParameters_TlsProtocol) {
	switch p {
	case FIPS1402:
		return tls12, tls12
	case PQC:
		return tls13, tls13
	}
	return tls12, tls13
}

// ciphers returns the cipher suites of TLS 1.2 that a policy allows, by their names in OpenSSL. They have no effect
// with PQC, except for Envoys that are built with OpenSSL, where they stand for those of TLS 1.3 with the same
// algorithms.
func ciphers() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
	}
}

// curves returns the groups for key exchanges that a policy allows.
func (p Policy) curves() []string {
	switch p {
	case FIPS1402:
		return []string{"P-256"}
	case PQC:
		return []string{"X25519MLKEM768"}
	}
	return []string{"P-256", "P-384"}
}

// Settings are TLS settings that users wrote beside a policy. Versions have the numbers of Envoy.
type Settings struct {
	Least, Most     tlsv3.TlsParameters_TlsProtocol
	Ciphers, Curves []string
}

// Setting is a setting without effect.
type Setting struct {
	// Field is its path in a MeshConfig's TLSConfig and in a Gateway's ServerTLSSettings, which have the same names.
	Field string
	// Message says what applies instead.
	Message string
}

// Ineffective returns the settings that proxies do not follow beside the policy. It leaves out names that Envoy does
// not know.
func (p Policy) Ineffective(s Settings) (list []Setting) {
	if p == None {
		return nil
	}
	add := func(field, instead string) {
		list = append(list, Setting{field, "with " + p.String() + " it has no effect: " + instead})
	}
	low, high := p.versions()
	speak := map[Policy]string{
		FIPS1402: "proxies speak TLS 1.2 alone", FIPS1403: "proxies speak TLS 1.2 and 1.3", PQC: "proxies speak TLS 1.3 alone",
	}[p]
	if s.Least != unset && s.Least != low {
		add("minProtocolVersion", speak)
	}
	if s.Most != unset && s.Most != high {
		add("maxProtocolVersion", speak)
	}
	judge := func(field string, written, allowed []string, isKnown func(string) bool) {
		use, kept := "proxies use "+strings.Join(allowed, ", "), 0
		for i, name := range written {
			switch {
			case slices.Contains(allowed, name):
				kept++
			case isKnown(name):
				add(field+"["+strconv.Itoa(i)+"]", use)
			}
		}
		if p == FIPS1403 && kept > 0 && !containsAll(written, allowed) { // Envoy's own policy replaces the list
			add(field, use)
		}
	}
	if p == PQC && len(s.Ciphers) > 0 {
		add("cipherSuites", "TLS 1.3 has cipher suites of its own")
	} else {
		judge("cipherSuites", s.Ciphers, ciphers(), names.HasCipher)
	}
	judge("ecdhCurves", s.Curves, p.curves(), names.HasCurve)
	return list
}

func containsAll(list, all []string) bool {
	return !slices.ContainsFunc(all, func(name string) bool { return !slices.Contains(list, name) })
}
