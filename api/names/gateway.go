package names

import "cmp"

// Annotations of a Gateway of the Gateway API that name what is made for it.
const (
	annotationDeployment = "gateway.istio.io/name-override"
	annotationAccount    = "gateway.istio.io/service-account"
)

// GatewayDeployment returns the name of the Deployment and the Service that are made for a Gateway of the Gateway API
// with a name, a class and annotations.
func GatewayDeployment(name, class string, annotations map[string]string) string {
	return cmp.Or(annotations[annotationDeployment], name+"-"+class)
}

// NamedGatewayAccount returns the service account that the annotations of a Gateway of the Gateway API name for its
// proxies, or nothing.
func NamedGatewayAccount(annotations map[string]string) string { return annotations[annotationAccount] }

// GatewayAccount is GatewayDeployment for the service account of its proxies.
func GatewayAccount(name, class string, annotations map[string]string) string {
	return cmp.Or(annotations[annotationAccount], GatewayDeployment(name, class, annotations))
}
