// Command pilot-discovery is the control plane. Each command has a package of its own:
//
//	discovery     runs the server
//	inject        adds proxies to a manifest
//	bootstrap     prints what an Envoy needs to connect to a server
//
//	check         checks a cluster, a server or a proxy
//	proxy-status  lists the proxies that are connected to a server
//	pushes        lists what a server has sent lately, and why
//	why           says what happens to a request, and why
//	translate     prints what a proxy would be sent
//	request       prints a page of a server
//	explain       says what a finding means
//
//	validate      prints what is wrong with configuration (package analyze)
//	analyze       prints what is wrong with a cluster, or with files on top of it
//	diff          prints what a change of configuration changes in what proxies are sent
//
//	migrate       says what differs when istiod-lite takes the place of istiod
//
//	token         makes tokens for a server without Kubernetes
//	load          connects simulated proxies to a server
//	version       prints the version (package cmd/version)
//
// Packages cli, env and input have what commands share. Commands turn flags into Options and results into text; the
// work is done in pilot, citadel, galley and injector. Environment variables are read only here, as defaults of flags,
// with one exception: pilot/config/crd reads the variables that name the proxy before an API server.
package main
