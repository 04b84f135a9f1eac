// Package webhooks tests the webhooks with a real API server, which calls them by URL: what is refused and with which
// words, how the configurations of a revision are kept, and that nothing is refused wrongly while servers come, go and
// change their certificates.
package webhooks
