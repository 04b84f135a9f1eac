// Package nds makes the name table: which addresses the DNS proxy of an agent answers with. The table has every service
// that a proxy may call and that has an address. A headless service has those of its pods, and each pod with a host
// name of its own, as those of a StatefulSet have, is a name too.
//
// The table is one resource without a name. It is put together from the parts of single hosts: a change makes the parts
// of its hosts anew, and copies the others. The endpoints of a headless service make its host dirty, so that the table
// depends on hosts alone. Its tests are in pilot/translate (nametable_test.go). The package is pure.
//
// The package pilot/facts/dns is about something else: the addresses of gateways between networks.
package nds
