// Package charts installs the charts of this tree on a real API server, with each Helm of package deploy/charts:
// install, upgrade, uninstall; every manifest against the schemas that this server publishes; and, as no kubelet is
// there, the containers by hand: the server with the arguments, the environment and the rights that the chart gives it,
// and what `helm test` would run. It is tests alone.
package charts
