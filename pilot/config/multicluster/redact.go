package multicluster

import (
	"slices"
	"strings"
)

// redact removes quotes of a kubeconfig from a message, whole or truncated, except values that are not secret. It
// tokenizes YAML and JSON without parsing them: a word that is neither a key nor the value of a public key is secret.
func redact(message string, kubeconfig []byte) string {
	public := []string{
		"apiVersion:", "kind:", "name:", "cluster:", "user:", "server:", "current-context:", "namespace:", "command:", "tls-server-name:",
		"insecure-skip-tls-verify:",
	}
	split := strings.NewReplacer(`":`, ": ", `"`, " ", "'", " ", "`", " ", ",", " ", "{", " ", "}", " ", "[", " ", "]", " ")
	key := ""
	for _, word := range strings.Fields(split.Replace(string(kubeconfig))) {
		switch {
		case word == "-":
		case strings.HasSuffix(word, ":"):
			key = word
		case slices.Contains(public, key):
			key = "" // one word is the value
		default:
			message = cut(message, word)
		}
	}
	return message
}

// A secret is recognised by its first prefix bytes, or as a whole if it is shorter. Words below shortest bytes occur in
// any text.
const (
	prefix   = 6
	shortest = 3
)

// cut replaces each occurrence of a secret or its beginning in a message.
func cut(message, secret string) string {
	if len(secret) < shortest {
		return message
	}
	begin := secret[:min(prefix, len(secret))]
	var b strings.Builder
	for {
		i := strings.Index(message, begin)
		if i < 0 {
			b.WriteString(message)
			return b.String()
		}
		b.WriteString(message[:i])
		b.WriteString("[redacted]")
		n := len(begin)
		for n < len(secret) && i+n < len(message) && message[i+n] == secret[n] {
			n++
		}
		message = message[i+n:]
	}
}
