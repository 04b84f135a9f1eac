package traffic

import (
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// The addresses of services.
const (
	extensionEchoService = "10.96.0.10:80"
	plainService         = "10.96.0.11:80"
)

// extensionMeshYAML has two servers and a client in another namespace, all with sidecars.
var extensionMeshYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10") +
	suite.ServiceYAML("plain", "a", "10.96.0.11") + suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080"`, suite.Sidecar) +
	suite.PodYAML("plain", "a", "10.10.0.12", `"-http=8080"`, suite.Sidecar) +
	suite.PodYAML("client", "b", "10.10.0.13", "", suite.Sidecar)
