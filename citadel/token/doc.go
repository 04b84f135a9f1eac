// Package token makes tokens of service accounts where there is no Kubernetes to make them. The key is a file in the
// server's state folder, so whoever may read that folder can make tokens, and nobody else.
package token
