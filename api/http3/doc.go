// Package http3 says which servers of Gateways take HTTP/3 where PILOT_ENABLE_QUIC_LISTENERS asks for it. Translation
// and analysis both ask. It is pure, and has no state.
package http3
