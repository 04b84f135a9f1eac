package authz

import (
	"fmt"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"
)

// filterPrefix is the prefix of keys of conditions on the metadata of an Envoy filter.
const filterPrefix = "experimental."

// condition translates a condition to attributes of the operation or of the source.
func (t translation) condition(c *securityv1beta1.Condition) ([]attribute[*rbacv3.Permission], []attribute[*rbacv3.Principal], error) {
	//nolint:unparam // it has the results of condition
	operation := func(match matchAny[*rbacv3.Permission]) ([]attribute[*rbacv3.Permission], []attribute[*rbacv3.Principal], error) {
		return []attribute[*rbacv3.Permission]{{c.Values, c.NotValues, match}}, nil, nil
	}
	operationEach := func(one func(string) (*rbacv3.Permission, error)) (
		[]attribute[*rbacv3.Permission], []attribute[*rbacv3.Principal], error) {
		return operation(each(permissions{}, one))
	}
	//nolint:unparam // it has the results of condition
	source := func(match matchAny[*rbacv3.Principal]) ([]attribute[*rbacv3.Permission], []attribute[*rbacv3.Principal], error) {
		return nil, []attribute[*rbacv3.Principal]{{c.Values, c.NotValues, match}}, nil
	}
	sourceEach := func(one func(string) (*rbacv3.Principal, error)) ([]attribute[*rbacv3.Permission], []attribute[*rbacv3.Principal], error) {
		return source(each(principals{}, one))
	}
	name, keys := splitKey(c.Key)
	switch {
	case name == "request.headers" && len(keys) == 1:
		return sourceEach(t.requestHeader(keys[0]))
	case name == "request.auth.claims" && len(keys) > 0:
		return source(t.claims(keys...))
	case strings.HasPrefix(name, filterPrefix+"envoy.filters.") && len(keys) == 1:
		return operation(filterMetadata(strings.TrimPrefix(name, filterPrefix), keys[0]))
	}
	switch c.Key {
	case "request.auth.principal":
		return source(t.requestPrincipals)
	case "request.auth.audiences":
		return source(t.claims("aud"))
	case "request.auth.presenter":
		return source(t.claims("azp"))
	case "source.ip":
		return sourceEach(sourceIP)
	case "remote.ip":
		return sourceEach(remoteIP)
	case "source.namespace":
		return source(namespaces)
	case "source.principal":
		return source(t.principals)
	case "source.serviceAccount":
		return sourceEach(t.serviceAccount)
	case "source.trustDomain":
		return source(t.trustDomains)
	case "destination.ip":
		return operationEach(destinationIP)
	case "destination.port":
		return operationEach(port)
	case "connection.sni":
		return operationEach(serverName)
	}
	return nil, nil, fmt.Errorf("unknown key %q", c.Key)
}

// splitKey splits a key such as name[a][b] into its name and the names in brackets at its end.
func splitKey(key string) (name string, inner []string) {
	name, rest, ok := strings.Cut(key, "[")
	if !ok || !strings.HasSuffix(rest, "]") {
		return key, nil
	}
	return name, strings.Split(strings.TrimSuffix(rest, "]"), "][")
}
