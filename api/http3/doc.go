// Package http3 decides which servers of Gateways serve HTTP/3 if PILOT_ENABLE_QUIC_LISTENERS is set. Translation and
// analysis share it. It is pure, and has no state.
package http3
