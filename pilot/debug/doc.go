// Package debug answers what the server knows and does: which proxies are connected and what they were sent, which
// services, endpoints and configuration it holds, and what is wrong with the latter.
//
// Every page is a function from the parameters of a query to a value that is written as JSON; how it travels is up to
// the caller: HTTP and ADS are two ways. The shapes are istiod's, with keys of our own beside its keys;
// deploy/e2e/pages names what is left out, and why. The package starts no goroutine and owns no state but a count of
// requests in progress. Two pages do more than read, and on the streams of proxies alone: adsz?push=true, and
// force_disconnect where Options.Admin is set.
//
// The identity of the peer counts, over ADS as over HTTP, where a bearer token proves it: authorize.Authorizer decides.
// Without one, peers on loopback are let in. Private keys and the data of Secrets are never shown.
//
// # Guarantees
//
//   - Debug pages answer loopback peers, accounts of the system namespace, and other accounts about their own proxies,
//     over HTTP as over ADS: [TestOnlyLoopback], [TestTokensOverHTTP], [pilot/bootstrap.TestDebugOverXDS]. Every page
//     answers without the content of a Secret: [TestEveryPageAnswers]. No log line or metric shows one either:
//     [TestSecretsAreShownNowhere].
//   - A web page in a browser of the host changes nothing: [TestNoOtherOriginChangesAnything].
//   - sidecarz shows what a proxy sees, as translation reads it, and pages have istiod's shapes:
//     [TestPagesHaveIstiosShapes]. A resource is shown even if its type is in no Go package: [TestUnlinkedTypes].
//   - The page of policies shows which of them apply to a proxy: [TestPoliciesOfOneProxy],
//     [deploy/e2e/traffic.TestGateway].
package debug
