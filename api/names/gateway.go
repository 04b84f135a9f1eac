package names

import "cmp"

// Annotations of a Gateway of the Gateway API that set the names of its objects.
const (
	annotationDeployment = "gateway.istio.io/name-override"
	annotationAccount    = "gateway.istio.io/service-account"
)

// GatewayDeployment returns the name of the Deployment and the Service that are made for a Gateway of the Gateway API
// with a name, a class and annotations.
func GatewayDeployment(name, class string, annotations map[string]string) string {
	return cmp.Or(annotations[annotationDeployment], name+"-"+class)
}

// NamedGatewayAccount returns the service account in the annotations of a Gateway of the Gateway API, or "".
func NamedGatewayAccount(annotations map[string]string) string { return annotations[annotationAccount] }

// GatewayAccount returns the name of the service account of a Gateway's proxies. It has the parameters of
// GatewayDeployment.
func GatewayAccount(name, class string, annotations map[string]string) string {
	return cmp.Or(annotations[annotationAccount], GatewayDeployment(name, class, annotations))
}
