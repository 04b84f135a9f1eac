// Package lds makes listeners: Envoy's envoy.config.listener.v3.Listener, by LDS.
// https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds
//
// A sidecar has listeners for outgoing traffic, one for each address and port of services (generator.go). The services
// of each egress listener are collected in one (egress.go), which is then built (outbound.go). Listeners for incoming
// traffic depend on the workload's own ports (inbound.go), listeners of a gateway on its Gateways (gateway.go), which
// terminate TLS (servertls.go). All consist of chains for HTTP (http.go) or bytes (tcp.go), to which features add
// filters. Listeners (lds.go) is the entry point.
//
// The routes of HTTP come by RDS (package rds), except for incoming traffic, where they are part of the listener.
package lds
