// Package certmanager holds a program that runs controllers of cert-manager, by its exported packages: Issuers of the
// types CA and SelfSigned, Certificates and their requests, Gateways and Ingresses with cert-manager's annotations, and
// CertificateSigningRequests of Kubernetes, which cert-manager's own program runs with the feature gate
// ExperimentalCertificateSigningRequestControllers.
//
// That program is in a module of its own, which the Go module proxy does not have, and links the clients of DNS
// services, Vault and Venafi, which the tests do not need.
//
// deploy/tools/module.sh builds it in the folder of cert-manager's module. The go command otherwise ignores it, so the
// control plane's module does not require cert-manager.
package certmanager
