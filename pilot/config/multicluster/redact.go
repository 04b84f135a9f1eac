package multicluster

import (
	"slices"
	"strings"
)

// redact takes out of a message what it quotes of a kubeconfig, whole or cut short, but for values that are no secret.
// It knows YAML and JSON well enough for that and need not understand them: what it takes for neither a key nor such a
// value is a secret.
func redact(message string, kubeconfig []byte) string {
	public := []string{"apiVersion:", "kind:", "name:", "cluster:", "user:", "server:", "current-context:", "namespace:", "command:", "tls-server-name:", "insecure-skip-tls-verify:"}
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

// What a secret is recognised by: so many bytes of its beginning, or all of one that is shorter. Still shorter words
// are found in any text.
const (
	prefix   = 6
	shortest = 3
)

// cut replaces each place where a message quotes a secret, or its beginning.
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
