// Package lds makes listeners: Envoy's envoy.config.listener.v3.Listener, by LDS.
// https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds
//
// A sidecar has listeners for outgoing traffic, one for each address and port of services (generator.go). The services
// of each egress listener are collected in one (egress.go), which is then built (outbound.go). Listeners for incoming
// traffic follow from the workload's own ports (inbound.go), those of a gateway from its Gateways (gateway.go), which
// terminate TLS (servertls.go). All are made of chains that take HTTP (http.go) or bytes (tcp.go); features add filters
// to these. Listeners (lds.go) is the entry point.
//
// The routes of HTTP come by RDS (package rds), except those for incoming traffic: they are part of the listener.
package lds
