// Package serviceentry is the registry of ServiceEntries: each host of an entry is a service, whose endpoints stand inline, are the host itself (DNS), or are
// the ready pods and WorkloadEntries of its namespace that it selects. The workloads come from the registry that knows them, see Update.
//
// A Registry is a state machine owned by one goroutine; it starts none. Its answer depends on the objects that are there and never on the order or batches
// in which they came.
//
// Entries of one namespace may share a host. The oldest says what the service is; the others add addresses, ports of further numbers, and endpoints, if
// their resolution is the same, and nothing otherwise.
//
// It does not write addresses back to the API server: those that it allots follow from the hosts alone, so that every replica allots the same.
package serviceentry
