// Package crd is the source of configuration from one Kubernetes API server. It runs a reflector for each kind.
//
// Objects of core kinds arrive as protobuf and are reduced to the fields that are read (slim.go) while they are
// decoded. Objects of Istio and the Gateway API arrive as JSON and are validated by galley/validation, as files are.
// Neither the bytes nor the whole objects are kept. Failures never weaken security:
//
//   - The first call of the Handler comes when every kind of the API server has been read completely. A kind whose
//     CustomResourceDefinition is missing is not awaited, and is read when the definition appears. When the definition
//     is deleted, so are its objects. A kind that exists, but whose lists are answered with 404, is awaited
//     (discovery.go).
//   - If a kind cannot be read, its objects stay in force, and so do all objects while the API server is unreachable.
//     Later lists report only real differences. Each failure is a finding that names the kind, and a metric. It does
//     not affect other kinds.
//   - Requests that the API server does not answer, and streams without events or bookmarks, time out and are repeated.
//   - An object with errors is in force without the faulty fields, and restricts no less. If it has a last good
//     version, that stays in force unless the new one restricts more, and an AuthorizationPolicy may be in force as
//     both. If no part of a security object can be read, the strictest object of its kind is in force (deny all,
//     STRICT). So the server can start and serve all other objects. See Document.InForce of galley/validation.
//   - A version that differs only in fields that are not read (status, managed fields) is no change and is not decoded.
//     In the first load every object is new: there, objects are decoded when they arrive, and their bytes are not kept.
//
// Single objects that are wanted at run time are read one by one, or if a namespace has many of them, by one watch of
// the namespace (wanted.go).
//
// Connections and streams are read in large pieces (gather.go), because an API server writes each of thousands of
// objects separately.
//
// Reflectors of client-go list and watch. Their store is this package's instead of an informer, which would keep a
// second index of the objects and a queue of their versions, and whose handler could not distinguish a relist from an
// update.
//
// List reads all objects once, in pages, without watching. Missing permissions are findings (list.go).
//
// The package does not filter by revision or namespace, does not write to the API server and does not interpret
// objects. A mutex guards a Source's state. Run calls the handlers from its own goroutine. It also runs one goroutine
// for each kind (or for each name, if only a few names are read) and one for the definitions. In each, client-go starts
// another one for the stream. All of them end before Run returns.
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
//   - The author of a version is passed on before the version, and the generation of a version that is not in force as
//     written is known: [TestAuthors].
//   - A kubeconfig of a remote cluster that runs programs or reads files is refused: [TestRemoteKubeconfigs].
package crd
