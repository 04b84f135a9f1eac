// Package charts installs the charts of this tree on a real API server, with each Helm of package deploy/charts. The
// tests install, upgrade and uninstall, and check every manifest against the schemas of the API server. There is no
// kubelet, so they run the containers themselves: the server with the arguments, environment and rights of the chart,
// and the command of `helm test`. The package has only tests.
package charts
