// Command bench compares istiod-lite with the real istiod. Each runs in turn on one core, with the same API server, the
// same mesh and the same simulated Envoys on the other cores. It writes medians, spreads and ratios to RESULTS.md, a
// section for each workload and setting, and keeps the sections that it did not measure. The table of goals at the top
// is made from all sections. Trials have figures that cannot be compared with these: those with -only, -env, -profiles,
// -rest, -routes or -idle, with another -length, or with a limit that MESH names. They are written to bin/RESULTS.md
// unless -out names a file. A call that ends early leaves RESULTS.md as it was after the last whole scene, and writes
// its other results beside the logs.
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
//	W2a   all proxies connect at once, without state; it connects the fleet for the next workloads
//	W2b   they connect again, naming what they hold (delta)
//	W3    an endpoint changes every 100 ms
//	W4    a Service with endpoints comes and goes, each two seconds
//	W5    a VirtualService changes every second
//	W5b   the same for a gateway with 5000 routes
//	W5c   W5b with a Gateway and HTTPRoutes of the Gateway API, whose CustomResourceDefinitions are there only then
//	W6    Sidecars restrict namespaces: what other namespaces get, and what any proxy gets of writes without effect
//	W7    one namespace changes all the time, another now and then
//	W8    memory with more and more idle proxies
//	W10   W3, but a tenth of the proxies reads nothing
//	W11   the validating webhook reviews objects, valid and not; W11b is the injection webhook, and pods
//	W13a  W2a in a mesh with STRICT mutual TLS and 250 policies; W13b is W3 there, and W13c W8
//	W14   there a policy of one namespace changes every second, and then a policy of the root namespace
//	W15a  W2a in that mesh with EnvoyFilters, access logs and TLS hosts of a gateway; W15b is W3 there, W15c W5
//	W15d  there an EnvoyFilter changes every second, and then a Secret
//	W16   the server is killed and started again while ten times the proxies are connected and an endpoint changes
//
// W2a, W3 to W5, W13a, W13b, W14 and W15 run in both protocols, and all others in delta. W3 and W10 make changes for a
// minute, W4 to W7 for 20 seconds, or all of them for -length. W2a, W2b and W8 take as long as the server needs. In
// W10, istiod-lite cuts a stalled proxy 10 s after a response, and a second later for each 64 KiB of it, so a minute is
// enough.
//
// # Micro-benchmarks
//
// W12 needs no other server: `make micro` runs the benchmarks of a commit, of cold and warm translation, of the
// difference of two Sets and of the splicing of a response, at 100, 1000 and 10000 services. It also runs them all
// together with 1 and 20 connected proxies, at 250, 1000 and 4000 services. It writes micro.txt. Compare two versions
// of it with benchstat.
//
// # Contenders
//
// The environment variable ISTIOD names the real istiod. Without it, it is built once into .tools from its Go module.
// It runs with default settings, and tuned for this comparison. PILOT_DISCOVERY names the binary of istiod-lite, which
// is otherwise built from this tree. The limit (see package limit) is built from this tree, unless MESH names a program
// whose command "limit" takes the same flags; such a program is measured in delta only. The limit copies the tuned
// istiod if that is measured, and otherwise another contender. Package cluster finds etcd and kube-apiserver. The
// results name rounds that failed. They do not affect other contenders, except that goals stay open without the figures
// of both istiods.
//
// One goroutine runs the workloads. Others wait for processes, make noise (W7) or fetch profiles. Only the results stay
// and, if something was started and failed, the folder with the logs.
//
// # Guarantees
//
//   - RESULTS.md keeps what was not measured again, and its plots follow its tables: [TestResults], [TestPlots].
package main
