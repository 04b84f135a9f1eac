// Package rds makes route configurations and their virtual hosts: Envoy's envoy.config.route.v3.RouteConfiguration, by
// RDS, and envoy.config.route.v3.VirtualHost, by VHDS.
// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/rds
//
// A route configuration is a header and a Set of virtual hosts (routes.go). Each host is a partition: for a sidecar the
// hosts of services and VirtualServices (sidecar.go), for a gateway the hosts of its Gateways (gateway.go). A virtual
// host has the routes of its VirtualServices, which features make, or else a default one (virtualhost.go,
// defaultroutes.go). Labels of its service may ask for sessions that stay at one endpoint
// (session.go).
package rds
