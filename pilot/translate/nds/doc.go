// Package nds makes the name table: the addresses with which the DNS proxy of an agent answers. The table has every
// service that a proxy may call and that has an address. A headless service has the addresses of its pods. Each pod
// with a host name of its own, as in a StatefulSet, is a name too.
//
// The table is one resource without a name. It consists of one part for each host: a change rebuilds the parts of its
// hosts, and copies the others. The endpoints of a headless service make its host dirty, so that the table depends on
// hosts alone. Its tests are in pilot/translate (nametable_test.go). The package is pure.
//
// The package pilot/facts/dns has another purpose: the addresses of gateways between networks.
package nds
