package authz

import (
	"errors"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// errNoHTTP is returned for attributes that only HTTP requests have.
var errNoHTTP = errors.New("only HTTP requests have it")

// operation returns the attributes that an operation requires.
func (t translation) operation(o *securityv1beta1.Operation) []attribute[*rbacv3.Permission] {
	return []attribute[*rbacv3.Permission]{
		{o.GetHosts(), o.GetNotHosts(), t.header(":authority", true)},
		{o.GetMethods(), o.GetNotMethods(), t.header(":method", false)},
		{o.GetPaths(), o.GetNotPaths(), each(permissions{}, t.path)},
		{o.GetPorts(), o.GetNotPorts(), each(permissions{}, port)},
	}
}

// header returns the matcher of a pseudo-header.
func (t translation) header(name string, ignoreCase bool) matchAny[*rbacv3.Permission] {
	return each(permissions{}, func(value string) (*rbacv3.Permission, error) {
		if !t.http {
			return nil, errNoHTTP
		}
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: headerMatcher(name, value, ignoreCase)}}, nil
	})
}

// path matches the path of a request without its query, as routes do.
func (t translation) path(value string) (*rbacv3.Permission, error) {
	switch {
	case !t.http:
		return nil, errNoHTTP
	case strings.Contains(value, "{*}"), strings.Contains(value, "{**}"):
		template := strings.NewReplacer("{*}", "*", "{**}", "**").Replace(value)
		return &rbacv3.Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name: "uri-template", TypedConfig: envoy.Any(&uritemplatev3.UriTemplateMatchConfig{PathTemplate: template}),
		}}}, nil
	}
	return &rbacv3.Permission{
		Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: stringMatcher(value)}}},
	}, nil
}

func port(value string) (*rbacv3.Permission, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(n)}}, err
}

func destinationIP(value string) (*rbacv3.Permission, error) {
	r, err := cidr(value)
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: r}}, err
}

func serverName(value string) (*rbacv3.Permission, error) {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: stringMatcher(value)}}, nil
}

// filterMetadata matches metadata that a filter sets on a request. A value in brackets is an element of a list.
func filterMetadata(filter, key string) matchAny[*rbacv3.Permission] {
	return func(values []string, _ bool) (*rbacv3.Permission, error) {
		var list []*matcherv3.ValueMatcher
		for _, v := range values {
			if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
				list = append(list, elementOf(textValue(stringMatcher(strings.Trim(v, "[]")))))
			} else {
				list = append(list, textValue(stringMatcher(v)))
			}
		}
		//nolint:staticcheck // the field that all supported Envoys read
		return &rbacv3.Permission{Rule: &rbacv3.Permission_Metadata{Metadata: metadataMatcher(filter, anyOf(list), key)}}, nil
	}
}
