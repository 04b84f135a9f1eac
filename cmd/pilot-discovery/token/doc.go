// Package token has the command token, which makes tokens for a server without Kubernetes.
package token
