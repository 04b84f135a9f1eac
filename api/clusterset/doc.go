// Package clusterset has the rules of the Multi-Cluster Services API (KEP-1645) that several packages apply: the host
// of a service in all clusters, the addresses of a ServiceImport, and the settings of istiod for the API.
package clusterset
