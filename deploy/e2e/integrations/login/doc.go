// Package login tests a login at a gateway: a policy of action CUSTOM makes a real Envoy ask oauth2-proxy by an
// extension provider envoyExtAuthzHttp, and oauth2-proxy redirects to an identity provider (mockoidc.go). The control
// plane reads a directory.
//
// # Guarantees
//
//   - A browser without a session is sent to the identity provider, and reaches the page it asked for once it has
//     logged in. The workload learns the user from oauth2-proxy, not from the browser. Wrong cookies, a session that
//     was ended, and pages that oauth2-proxy answers itself let no request pass: [TestLogin].
//   - Without oauth2-proxy no request passes: [TestWithoutTheProxy].
package login
