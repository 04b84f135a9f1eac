// Package agent stands in the place of the agent beside a proxy: it connects the proxy to the control plane's secure
// port by the certificate of an account.
package agent
