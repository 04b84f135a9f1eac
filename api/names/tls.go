package names

// HasCipher reports whether Envoy knows a cipher suite of TLS 1.2, by its name in OpenSSL. Envoy rejects a listener
// that names another one.
func HasCipher(name string) bool {
	switch name {
	case "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA":
		return true
	}
	return false
}

// HasCurve reports whether Envoy knows a curve for key exchanges. Envoy rejects a listener that names another one.
func HasCurve(name string) bool {
	switch name {
	case "P-256", "P-384", "P-521", "X25519", "X25519MLKEM768":
		return true
	}
	return false
}
