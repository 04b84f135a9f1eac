// Package debug answers queries about the server's state: the connected proxies and what they were sent, the services,
// endpoints and configuration, and the findings about them.
//
// Each page is a function from query parameters to a value that is encoded as JSON. The caller transports it, over HTTP
// or ADS. The formats are istiod's with additional keys; deploy/e2e/pages lists the keys that are missing, and why. The
// package starts no goroutine and keeps only the number of current requests. Two pages change something, and only the
// streams of proxies: adsz?push=true, and force_disconnect if Options.Admin is set.
//
// authorize.Authorizer decides by the identity of the peer, over ADS as over HTTP, where a bearer token proves it.
// Without a token, only peers on loopback are admitted. Pages never show private keys or the data of Secrets.
//
// # Guarantees
//
//   - Debug pages answer loopback peers, accounts of the system namespace, and other accounts about their own
//     proxies, over HTTP as over ADS: [TestOnlyLoopback], [TestTokensOverHTTP], [pilot/bootstrap.TestDebugOverXDS].
//     Accounts may also ask whether objects of their own namespace are in force, and see no names of proxies of other
//     namespaces. They may not ask about a Secret by the hash of its content: [TestReadersOfANamespace]. Questions
//     about the version that the API server has are never answered about another one: [TestCurrentVersion]. Every
//     page answers without the content of a Secret: [TestEveryPageAnswers]. No log line or metric shows one either:
//     [TestSecretsAreShownNowhere].
//   - A web page in a browser of the host changes nothing: [TestNoOtherOriginChangesAnything].
//   - sidecarz shows what a proxy sees, as translation reads it, and pages have istiod's shapes:
//     [TestPagesHaveIstiosShapes]. A resource is shown even if its type is in no Go package: [TestUnlinkedTypes].
//   - The page of policies shows which of them apply to a proxy: [TestPoliciesOfOneProxy],
//     [deploy/e2e/traffic.TestGateway].
package debug
