// Package crd is the source of configuration that reads one Kubernetes API server: a reflector for each kind.
//
// Objects of the core kinds come as protobuf and are cut down to what is read of them (slim.go) while they are being
// decoded; those of Istio and of the Gateway API come as JSON and are judged by galley/validation, as files are.
// Neither the bytes nor the whole object are kept. What is handed on is never less safe than what was:
//
//   - The first call of the Handler comes when every kind that the API server has is read in full. A kind whose
//     CustomResourceDefinition is missing is not waited for, and is read as soon as there is one. When the definition
//     goes, so do its objects. A kind that is there, and whose lists are answered 404, is waited for (discovery.go).
//   - A kind that cannot be read keeps the objects that it had, and so do all of them while the API server is away;
//     lists that are read again hand on only true differences. What is wrong is a finding that names the kind, and a
//     metric. The other kinds go on.
//   - An API server that takes requests and does not answer, or a stream on which not even a bookmark comes, is given
//     up by the clock and asked anew.
//   - An object with errors is in force without them, and restricts no less. If it has a last good version, that stays
//     in force unless the new one restricts more, and an AuthorizationPolicy may be in force as both. If nothing of a
//     security object can be read, the strictest object of its kind is in force (deny all, STRICT). So the server can
//     start and serve the rest. See Document.InForce of galley/validation.
//   - A version that differs in nothing that is read (status, resync, managed fields) is no change, and is not decoded
//     again. In the first load everything is new: there, objects are decoded as they come, and their bytes are not kept
//     for a moment.
//
// Single objects that are wanted at run time are read one by one, or where many of a namespace are, by one watch of
// that (wanted.go).
//
// Connections and streams are read in large pieces (gather.go): an API server writes each of thousands of objects by
// itself.
//
// Reflectors of client-go list and watch, with a store of our own in place of its informers: an informer would keep a
// second index of the objects and a queue of their versions, and its handler could not distinguish a relist from an
// update.
//
// List reads everything once instead, in pages, and watches nothing: what may not be read is a finding (list.go).
//
// It does not filter by revision or namespace, writes nothing to the API server and does not know what objects mean. A
// Source's state is guarded by one mutex. Run calls the handlers from its own goroutine; besides, it runs one goroutine
// for each kind (for each name, where few are read by names) and one for the definitions. In each, client-go starts one
// more for the stream. All of them end before Run returns.
//
// # Guarantees
//
//   - A security object that cannot be read at all is replaced by the most restrictive one of its kind (deny all,
//     STRICT): [TestSecurityObjectsFailClosed].
//   - Nothing is cut away in decoding that a registry reads: [TestRegistryReadsNothingThatIsCutOff], [TestProxyImage].
//   - Nothing is served until every kind of an API server is read. No outage, relist, broken watch or refusal removes
//     anything: [TestNotFoundIsNotAbsent], [TestSilentStream], [TestUnansweredRequests],
//     [deploy/e2e/kube.TestOutages], [deploy/e2e/kube.TestPartition], [deploy/e2e/kube.TestFrozen],
//     [deploy/e2e/kube.TestEtcdFrozen].
//   - Secrets are watched one by one, and many of one namespace by one watch: [TestManyWantedObjects],
//     [TestWantedOfARemoteCluster].
//   - A kind that is forbidden, unanswered or undefined is a finding, and affects no other kind:
//     [deploy/e2e/kube.TestTroubles].
//   - The same objects from an API server and from files give every proxy the same bytes:
//     [deploy/e2e/kube.TestSameAsFiles].
//   - A kubeconfig of a remote cluster that runs programs or reads files is refused: [TestRemoteKubeconfigs].
package crd
