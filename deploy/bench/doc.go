// Command bench runs istiod-lite beside the real istiod: each in turn on one core, with the same API server, the same
// mesh and the same simulated Envoys on the others. It writes medians, spreads and ratios into RESULTS.md, a section
// for each workload and setting, and leaves the sections of others as they were; the table of goals at its top follows
// from all. Trials, whose figures cannot stand beside those (-only, -env, -profiles, -rest, -routes, -idle, a -length
// that is not a workload's own, or a limit that MESH names), are written into bin/RESULTS.md unless -out says where. A
// call that is ended early leaves RESULTS.md as it was at its last whole scene, and what else it has beside the logs.
//
//	go run ./deploy/bench                                    # everything: 1000 services, 300 proxies, 3 rounds of 35 minutes on two cores
//	go run ./deploy/bench -w W3,W4 -services 1000 -proxies 300 -rounds 5
//	go run ./deploy/bench -growth                            # W1 to W5 at 250, 1000 and 4000 services, 100, 300 and 1000 proxies, with plots
//	go run ./deploy/bench -w W8 -idle 0,1000,5000            # a trial, as are the next two
//	go run ./deploy/bench -w W3,W4 -services 50 -proxies 20 -rounds 1 -length 5s
//	go run ./deploy/bench -only lite,limit-vhds -profiles /tmp/profiles
//
// # Workloads
//
//	W1    a cold start
//	W2a   all proxies connect at once, knowing nothing; it connects the fleet for those below it
//	W2b   they connect again, naming what they hold (delta)
//	W3    an endpoint changes every 100 ms
//	W4    a Service with endpoints comes and goes, each two seconds
//	W5    a VirtualService changes every second
//	W5b   the same for a gateway with 5000 routes
//	W5c   W5b with a Gateway and HTTPRoutes of the Gateway API, whose CustomResourceDefinitions are there only then
//	W6    Sidecars scope namespaces: what the others get, and what all get because of writes that concern no proxy
//	W7    one namespace changes all the time, another now and then
//	W8    memory with more and more idle proxies
//	W10   W3, and a tenth of the proxies reads nothing
//	W11   the validating webhook reviews objects, valid and not; W11b is the injection webhook, and pods
//	W13a  W2a in a mesh with STRICT mutual TLS and 250 policies; W13b is W3 there, and W13c W8
//	W14   there a policy of one namespace changes every second, and then that of the root namespace
//	W15a  W2a in that mesh with EnvoyFilters, access logs and TLS hosts of a gateway; W15b is W3 there, W15c W5
//	W15d  there an EnvoyFilter changes every second, and then a Secret
//
// W2a, W3 to W5, W13a, W13b, W14 and W15 run in both protocols, all others in delta. W3 and W10 make changes for a
// minute, W4 to W7 for 20 seconds, or all for -length; W2a, W2b and W8 take as long as the server does. In W10 a
// stalled proxy is cut off by istiod-lite 10 s after a response, and a second for each 64 KiB of it, which a minute
// has room for.
//
// # Micro-benchmarks
//
// W12 needs no other server: `make micro` runs the benchmarks of the commit of a change, of translation cold and warm,
// of the difference of two Sets and of the splicing of a response, at 100, 1000 and 10000 services, and of all of it
// with 1 and 20 connected proxies, at 250, 1000 and 4000. It writes micro.txt, the last measured: compare two versions
// of it with benchstat.
//
// # Contenders
//
// The real istiod comes from the environment variable ISTIOD, else it is built once into .tools from its Go module; it
// runs as it is by default and tuned for this. istiod-lite is built from this tree unless PILOT_DISCOVERY names a
// binary. The limit (see package limit) is built from this tree, unless MESH names a program whose command "limit"
// takes the same flags (it is asked for delta alone); it copies the tuned istiod where that is measured too, else what
// is. etcd and kube-apiserver are found as package cluster finds them. A round that fails is named in the results, and
// costs no other contender anything; without the figures of one of the istiods it stays open whether a goal is met.
//
// One goroutine runs all; others wait for processes, make noise (W7) or fetch profiles. It leaves nothing behind but
// the results and, where something was started and failed, the folder with the logs.
//
// # Guarantees
//
//   - RESULTS.md keeps what was not measured again, and its plots follow its tables: [TestResults], [TestPlots].
package main
